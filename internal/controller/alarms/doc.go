// Package alarms has the alarms of a cloud: what requires an operator, since when, and the free space
// of the disks of the registry and the nodes.
//
// It does not check other parts or the process: their checks are sources, which New gets.
//
// Invariant: an alarm is logged when it begins, and keeps the time of that until it ends.
package alarms
