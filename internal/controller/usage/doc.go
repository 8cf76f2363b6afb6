// Package usage counts: how many instances are in which state, how long they wait and start, the
// utilization of the cloud, its groups and its nodes over time, and the usage by group, owner and
// template.
//
// It excludes measurements of the process itself, and it decides nothing by its numbers.
//
// Invariant: its numbers follow from the events of the records and the polls of nodes, so that every
// replica has the same ones and no reader scans all instances.
package usage
