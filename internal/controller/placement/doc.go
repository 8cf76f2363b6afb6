// Package placement creates instances and places pending ones on nodes: it feeds the scheduler's index
// with every change of the records and carries out its decisions.
//
// It excludes the decisions (internal/sched), and everything that keeps an instance from being placed
// but the nodes: its Blocker knows that.
//
// Invariant: a placement is written only while this replica is the leader, and only with a check that
// the node's record is the one that it was decided on.
package placement
