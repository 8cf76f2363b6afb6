// Package controller makes one controller of its parts, the packages below it, and has what concerns
// most of them: the checks of a start request, explanations, and the list of what the leader does.
//
// It excludes HTTP (internal/rest), the decisions of the scheduler (internal/sched) and storage
// (internal/store): it connects them.
//
// Invariant: an acknowledged instance is a durable record, and that record is removed only after
// its node has reported that nothing of the VM is left.
package controller
