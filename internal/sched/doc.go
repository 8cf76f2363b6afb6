// Package sched decides which waiting instance starts on which node, and says why
// one does not. It is an index that is fed with nodes, groups and instances as they
// change, and pure decisions over it: the same content gives the same answers, in
// whatever order it came in.
//
// It is not a queue, a store or a service: it reads no clock, starts nothing,
// blocks on nothing, logs nothing and keeps nothing. Whoever owns the Index feeds it, carries
// out its assignments and tells it when one could not be carried out.
//
// Invariant: no answer of Place puts a request on a node that lacks room for it
// or breaks one of its constraints, as far as the index was told.
//
// Which node: requests fall into pools by what decides feasibility (group,
// architecture, saved state, size, USB device, pinned node) and inside a pool into
// classes by what decides the score (template, version). A pool orders the nodes
// that can take its requests; a class orders those of them that have something of
// its version. A pool that no node has room for is parked: it costs nothing until a
// node changes that could take it.
//
// Who is next: the groups take turns, inside a group the owners, and inside an owner
// the requests go by priority and age; see order.go.
package sched
