// Package controller holds the use cases of the build cloud's manager: start,
// watch and end instances, place them on nodes, speak with the nodes' agents, and
// clean up behind all of them.
//
// It is not HTTP (internal/rest), not the decisions of the scheduler
// (internal/sched) and not storage (internal/store): it wires them.
//
// Invariant: an acknowledged instance is a durable record, and that record leaves
// only after its node has said that nothing of the VM is left.
package controller
