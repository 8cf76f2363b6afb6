// Command bench-scan measures the promises of the image scanner: a directory beside another
// scanner that does the same work, disks and templates beside the directory, the matching of
// packages, and the building of databases.
//
//	go run ./test/bench/scan -scalibr FILE [-shared FOLDER] [-only ROWS] [-rounds N] [-check] [-json FILE]
//
// It is neither a test of what is found nor a comparison between machines: what is
// compared runs as processes on the same warm tree, in turns.
//
// Invariant: every figure was measured in this run; a row that could not be measured
// fails the run.
package main
