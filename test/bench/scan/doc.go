// Command bench-scan measures the promises of the image scanner beside another scanner
// that does the same work.
//
//	go run ./test/bench/scan -scalibr FILE [-only ROWS] [-rounds N] [-check] [-json FILE]
//
// It is neither a test of what is found nor a comparison between machines: both scanners
// run as processes on the same warm tree, in turns.
//
// Invariant: every figure was measured in this run; a row that could not be measured
// fails the run.
package main
