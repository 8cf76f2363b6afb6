// Package certs has what a service does with certificates: the pair that it shows, and who
// its callers are by certificates of their own, shown in the handshake or passed on by a
// reverse proxy.
//
// It is not a server and opens no connection; what a caller may do is decided elsewhere. It
// follows the files that it was given, so that certificates, authorities and revocation lists
// change without a restart.
//
// Invariant: what is active was whole and valid when it was taken up. A file that breaks
// later changes nothing but the alarm, and neither opens nor closes anything.
package certs
