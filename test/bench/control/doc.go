// Command control measures the promises that this product makes about its control
// plane: how many instances a second it takes, how soon they are Started, how fast it
// lists them, what idle nodes cost, and how soon it is back after a restart.
//
//	go run ./test/bench/control [-only LIST] [-check] [-json FILE] [-keep]
//
// The server is the real program as a process of its own with its embedded, durable
// store; the nodes are those of `buildnode sim` in a process of their own, with VMs
// that boot in no time; the client is this program, over HTTP connections that are
// kept. All of them share one machine, as the figures of others were measured.
//
// Invariant: every figure was measured in this run; a row that could not be measured
// fails the run.
package main
