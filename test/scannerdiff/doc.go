// Package scannerdiff compares the packages that the image scanner finds in a directory with those that osv-scalibr and
// syft find, and explains the differences by a list.
//
// It does not decide which is right: the list has the class and the reason of each difference, after manual review.
//
// Invariant: a difference that no line of the list explains fails, and so does a line that explains none.
package scannerdiff
