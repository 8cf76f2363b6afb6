// Package pairsum computes the SHA-256 of two byte slices at a time.
//
// A processor with SHA instructions waits for the result of each one before it can begin the next one of the same
// sum. The instructions of a second sum fit into these waits: two sums take little longer than one. The package
// contains only the loop over common blocks; crypto/sha256 computes the rest, and everything on other processors.
// It is not a hash.Hash: it has no state between calls.
//
// Invariant: both results are those of crypto/sha256.
package pairsum
