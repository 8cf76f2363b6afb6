// Package controller has the use cases of the controller: start, watch and end instances, place
// them on nodes, communicate with the nodes' agents, and clean up after all of them.
//
// It excludes HTTP (internal/rest), the decisions of the scheduler (internal/sched) and storage
// (internal/store): it connects them.
//
// Invariant: an acknowledged instance is a durable record, and that record is removed only after
// its node has reported that nothing of the VM is left.
package controller
