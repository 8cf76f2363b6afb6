// Command scannercompare compares the findings of the image scanner in a directory with those of
// osv-scalibr and syft.
//
//	go run ./test/scannercompare -scalibr FILE -syft FILE [-dir DIR] [-all]
//
// It does not decide which is right: every difference is in differences.tsv with its class and
// reason, after manual review.
//
// Invariant: a difference that no line explains fails, and so does a line that explains none.
package main
