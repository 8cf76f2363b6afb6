// Package encode gives what the host scanner knows as its API has it: packages, findings, the
// status and events.
//
// It is not the protocol: it serves and sends nothing.
//
// Invariant: lists are never null, but for the related vulnerabilities of an entry, which
// clients know so.
package encode
