// Command vm measures the promises that this product makes about real VMs: what it
// adds to a boot, how much faster a suspended version starts, how long a save holds a
// guest up, and what idle guests cost.
//
//	go run ./test/bench/vm -pairs 5 [-only LIST] [-check] [-json FILE] [-keep]
//
// It is neither a test of the code nor a comparison between machines: it runs the real
// programs as processes on loopback addresses, asks them through the public API, and
// takes what happens inside a start from QEMU's own clock. It leaves nothing behind,
// however it ends.
//
// Invariant: every figure was measured in this run; a row that could not be measured
// fails the run.
package main
