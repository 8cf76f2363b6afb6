// Package certs handles the certificates of a service: its own key pair, and the client
// certificates of its callers, presented in the handshake or passed on by a reverse proxy.
//
// It is not a server and opens no connection; what a caller may do is decided elsewhere. It follows
// its files, so that certificates, authorities and revocation lists change without a restart.
//
// Invariant: active files were complete and valid when they were loaded. A file that breaks later
// changes nothing but the alarm, and neither grants nor revokes anything.
package certs
