// Package alarms has the alarms of a cloud: what requires an operator, since when, the free space of
// the disks of the registry and the nodes, and the growth of the queue.
//
// It does not check other parts or the process: their checks are sources, which New gets.
//
// Invariant: an alarm is logged when it begins and when it ends, and keeps the time of its begin until
// then; of all replicas only the leader writes its events.
package alarms
