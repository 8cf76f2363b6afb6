// Package reconcile drives records to what they should be: a work queue of the records that are due,
// rules for instances, and periodic jobs. The rules and jobs are registered by the package that knows
// their meaning.
//
// It excludes the decision which replica is the leader: a Loop lives for one leader term and writes
// through it alone.
//
// Invariant: a record has at most one entry in the queue, and costs nothing until that is due.
package reconcile
