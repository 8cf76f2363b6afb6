// Package adoption carries out what an operator decides about orphaned VMs: they become instances again,
// or are removed in spite of the guard.
//
// It does not find orphaned VMs, and does not remove them: package nodelink does.
//
// Invariant: a VM gets no record other than its own, so that an instance that is placed on one node is
// never started on another.
package adoption
