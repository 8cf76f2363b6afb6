// Package nodes has the nodes of a cloud: how they join and are removed, their settings, their state,
// and how clients see them.
//
// It excludes the node API, which nodelink serves, and the decision what runs on a node.
//
// Invariant: the record of a node exists from its join to its removal, and only the leader changes its
// state.
package nodes
