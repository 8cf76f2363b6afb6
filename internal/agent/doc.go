// Package agent is the node agent: it polls its controller for orders, brings
// template versions here, starts and watches VMs through a hypervisor driver, runs
// startup scripts, and reports what became of everything.
//
// It is not the controller and decides no placement; it knows the wire (api), the
// driver interface (hv) and the cache, and nothing of a store or a portal. One
// worker a VM goes round observe -> decide (a pure table) -> act; a poll, a report
// and a watch goroutine beside them share none of their waits.
//
// Invariant: an order is in the journal before it is acknowledged, a phase before
// it is acted on, and "script begun" before the script; so an agent that is killed
// anywhere continues where it was, runs no script twice and leaves no VM behind.
// An end alone is acted on before it is in the journal, and acknowledged only when
// it is there or done: a disk may be full of the very VM that is to go.
package agent
