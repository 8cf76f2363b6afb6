// Command scannercompare compares the findings of the image scanner in a directory with those of
// osv-scalibr and syft, and which vulnerable functions real Go programs have with the answers of govulncheck.
//
//	go run ./test/scannercompare -scalibr FILE -syft FILE -govulncheck FILE -advisories FILE
//		[-only packages|reachable] [-dir DIR] [-all]
//
// It does not decide which is right about packages: every difference is in differences.tsv with its class and
// reason, after manual review. About functions there must be no difference.
//
// Invariant: a difference that no line explains fails, and so does a line that explains none.
package main
