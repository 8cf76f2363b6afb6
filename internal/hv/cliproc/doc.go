// Package cliproc runs and finds the processes of hypervisors that are driven by a command line: short commands with a
// time-out and bounded outputs, VM processes that outlive their starter, and the fcntl locks that such programs hold
// while a VM runs.
//
// It does not know any hypervisor, parses no output, and keeps no state: what a driver has to remember, it gets as
// values.
//
// Invariant: a process is never signaled by its PID alone; its start time has to match too.
package cliproc
