// Package vulndb stores vulnerability records in one immutable file: advisories by ecosystem and
// package, products by vendor and name, and each vulnerability with its score. It builds that file
// from public feeds, updates and reads it.
//
// It does not decide what is affected: internal/scan/match does, from these records.
//
// Invariant: a database is never incomplete: it is written next to its target, synced and renamed,
// and the checksum of every block that is read was verified.
package vulndb
