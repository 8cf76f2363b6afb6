// Package groups has the node groups: their records, their fallbacks, and which nodes are in them.
//
// It does not place instances: the scheduler reads the records.
//
// Invariant: the fallbacks form no cycle, and once a group is deleted no record can refer to it any
// longer.
package groups
