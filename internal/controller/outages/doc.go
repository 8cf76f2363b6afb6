// Package outages groups the nodes that are Offline or Unhealthy by their common cause: state, reason,
// time, group and address.
//
// It does not decide the state of a node, which package nodes does, and writes no record.
//
// Invariant: every such node is in exactly one outage, except one that has joined and was never in
// contact; and a caller's outages have only nodes that the caller may see.
package outages
