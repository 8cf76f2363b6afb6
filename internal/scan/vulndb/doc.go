// Package vulndb keeps what is known of vulnerabilities in one immutable file: advisories
// by ecosystem and package, products by vendor and name, and each vulnerability with its
// score. It builds that file from public feeds, brings it up to date and reads it.
//
// It does not decide what is affected: internal/scan/match does, from these records.
//
// Invariant: a database is never half there: it is written beside its target, synced and
// renamed, and every block that is read was compared with its checksum.
package vulndb
