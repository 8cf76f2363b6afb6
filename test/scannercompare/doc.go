// Command peers compares what the image scanner finds in a directory with what the programs
// of osv-scalibr and syft find in the same.
//
//	go run ./test/scannercompare -scalibr FILE -syft FILE [-dir FOLDER] [-all]
//
// It does not say who is right: every difference stands in differences.tsv with its class
// and reason, and somebody looked at it.
//
// Invariant: a difference that no line explains fails, and so does a line that explains
// none.
package main
