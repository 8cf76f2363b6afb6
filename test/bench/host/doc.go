// Command bench-host measures the promises of the host scanner: what it costs while nothing
// happens, while other programs write and during a burst of new files, how soon a package is
// reported, and how long a full scan takes compared to the image scanner.
//
//	sudo go run ./test/bench/host [-shared DIR] [-only ROWS] [-rounds N] [-check] [-json FILE]
//
// It is not a test of the findings: make e2e-host is. It measures on Linux, as root, with the whole
// machine watched, so that the effect of other programs on it is measured too.
//
// Invariant: every figure was measured in this run, of the programs as users get them; a row that
// could not be measured fails the run.
package main
