// Package reconcile does the periodic work of the leader: a work queue of the records that are due,
// the rules by which instances change without a request, and jobs.
//
// It excludes the decision which replica is the leader: a Reconciler lives for one leader term and
// writes through it alone. The states of nodes and the jobs belong to other parts, which register them.
//
// Invariant: a record has at most one entry in the queue, and costs nothing until that is due.
package reconcile
