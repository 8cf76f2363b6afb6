// Command mac measures the promises that this product makes about Macs: what it adds to a start and
// to a command of tart, what the size of a disk and a next tag cost, and how fast its ports are.
//
//	go run ./test/bench/mac [-rounds N] [-only LIST] [-check] [-json FILE] [-keep]
//
// It measures the real programs over an imitation of tart, not a Mac: guests are processes of this
// host, and a clone is one of XFS. It needs root, since it mounts that file system in a file of
// $TMPDIR. It takes 12 GB there and leaves nothing behind, however it ends.
//
// Invariant: every figure was measured in this run; a row that could not be measured fails the run.
package main
