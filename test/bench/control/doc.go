// Command control measures the promises that this product makes about its control plane: how many
// instances per second it accepts, how soon they are Started, how fast it lists them, what idle
// nodes cost, and how soon it is available after a restart.
//
//	go run ./test/bench/control [-only LIST] [-check] [-json FILE] [-keep]
//
// The server is the real program as a separate process with its embedded, durable store; the nodes
// are those of `buildnode sim` in another process, with VMs that boot in no time; the client is
// this program, over persistent HTTP connections. All of them share one machine, as in the
// measurements of other products.
//
// Invariant: every figure was measured in this run; a row that could not be measured fails the run.
package main
