// Command fault kills the programs of a small cloud at random moments, restarts them,
// and holds everything that was acknowledged against what is there in the end.
//
//	go run ./test/fault -n 50 -seed s [-targets controller,agent,qemu,save,qemu-save] [-json FILE]
//
// It is not a load test and not a unit test: it builds the real programs, runs them as
// processes on loopback addresses and ends them with SIGKILL. It kills only processes
// that it started, or that its own agents started below its own directory, by their id.
//
// Invariant: every figure that it prints was counted in this run; what could not be
// counted fails the run.
package main
