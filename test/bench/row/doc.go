// Package row is the table of a benchmark: promises with their targets, the figures
// that a run found out about them, and the report of both.
//
// It measures nothing itself.
//
// Invariant: a row has a value only when it has all the samples that it needs.
package row
