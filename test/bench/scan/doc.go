// Command bench-scan measures the targets of the image scanner: a directory compared with another
// scanner that does the same work, disks and templates compared with the directory, the matching of
// packages, and the building of databases.
//
//	go run ./test/bench/scan -scalibr FILE [-shared DIR] [-only ROWS] [-rounds N] [-check] [-json FILE]
//
// It neither tests the findings nor compares machines: the compared programs run as processes on
// the same warm tree, in turns.
//
// Invariant: every figure was measured in this run; a row that could not be measured fails the run.
package main
