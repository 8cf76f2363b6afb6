// Package record has the records of the controller: their kinds and forms, the tables with their
// indexes and sums, transactions over them, and the hook that every commit passes.
//
// It excludes what records mean and who changes them when: it is below all other packages of the
// controller and imports none of them.
//
// Invariant: a record of an earlier release is read as it was written: kinds, keys and JSON fields
// never change.
package record
