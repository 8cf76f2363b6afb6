// Package nodelink is the controller's side of the node API: the session of each node that polls
// this replica, with its pending orders, cache jobs, consoles, agent update and inventory, and the
// digests with which replicas tell each other about their nodes.
//
// It excludes who may join, what runs where, and what a reported status means for an instance: the
// controller passes these in through Options. Nothing but the written descriptions, results and
// digests is stored; after a restart every node sends its description again, and every order that is
// still needed is sent again.
//
// Invariant: an orphaned VM is ordered to be removed only after the store itself has shown no record
// of it.
package nodelink
