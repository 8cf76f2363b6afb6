// Package usage counts: how many instances are in which state, how long they wait and start, and the
// utilization of the cloud over time.
//
// It excludes measurements of the process itself, and it decides nothing by its numbers.
//
// Invariant: its numbers follow from the events of the records, so that every replica has the same
// ones and no reader scans all instances.
package usage
