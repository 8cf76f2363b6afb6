// Package sched decides which pending instance starts on which node, and explains why one does not.
// It is an index of nodes, groups and instances, updated as they change, and pure decisions over
// it: the same content leads to the same decisions, in whatever order it came in.
//
// It is not a queue, a store or a service: it reads no clock, starts nothing, blocks on nothing,
// logs nothing and stores nothing. The owner of the Index updates it, carries out its assignments
// and undoes those that could not be carried out.
//
// Invariant: Place never assigns a request to a node that lacks capacity for it
// or breaks one of its constraints, as far as the index knows.
//
// Which node: requests are divided into request groups by what decides feasibility (group,
// architecture, saved state, size, USBDevices device, pinned node) and inside a request group into classes
// by what decides the score (template, version). A request group orders the nodes that can take its
// requests; a class orders those of them that have some content of its version. A request group for
// which no node has capacity is parked: it costs nothing until a node changes that could take it.
//
// Who is next: the groups take turns, inside a group the owners, and inside an owner the requests
// go by priority and age; see fairness.go.
package sched
