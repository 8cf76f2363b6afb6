// Package encode converts the data of the host scanner to the types of its API: packages, findings, the status
// and events.
//
// It is not the protocol: it serves and sends nothing.
//
// Invariant: lists are never null, except the related vulnerabilities of an entry, which clients expect that
// way.
package encode
