// Command ha measures a replicated control plane on this machine: three etcd members and three controllers,
// compared with one controller and its embedded store.
//
//	go run ./test/bench/ha -etcd FILE [-only ROW,...] [-json FILE] [-check]
//
// All processes share the processors and one disk, so that figures are lower bounds of what separate
// machines reach.
//
// It checks no record, see test/ha.
//
// Invariant: rows that it has no code for are skipped, never passed.
package main
