// Command bench-host measures the promises of the host scanner: what it costs while nothing
// happens, while others write and while a storm of files goes by, how soon a package is
// reported, and how long a full scan takes beside the image scanner.
//
//	sudo go run ./test/bench/host [-shared FOLDER] [-only ROWS] [-rounds N] [-check] [-json FILE]
//
// It is no test of what is found: make e2e-host is. It measures on Linux, as root, with the
// whole machine watched, so that what else runs on it is measured too.
//
// Invariant: every figure was measured in this run, of the programs as users get them; a
// row that could not be measured fails the run.
package main
