// Package agent is the node agent: it polls its controller for orders, pulls template versions,
// starts and watches VMs through a hypervisor driver, runs startup scripts, and reports the state
// of everything.
//
// It is not the controller and does not place instances; it knows the wire format (api), the driver
// interface (hv) and the cache, but neither a store nor a portal. One worker per VM repeats observe
// -> decide (a pure table) -> act; separate goroutines poll, report and watch, so that none of them
// waits for another.
//
// Invariant: an order is in the journal before it is acknowledged, a phase before it is acted on,
// and "script begun" before the script. An agent that is killed at any time therefore resumes where
// it was, runs no script twice and leaves no VM behind. The only exception is a termination: it is
// acted on before it is in the journal, because the disk may be full due to the VM that is to be
// removed, and acknowledged only once it is in the journal or done.
package agent
