// Package fault kills the programs of a small cloud at random moments, restarts them, and compares
// everything that was acknowledged with the final state. Command faultrun runs it; other suites use its
// Workload on clouds of their own.
//
// The targets, each on a separate cloud:
//
//	controller  the controller, with the registry in its process, under 500 creates a
//	            second by the clock; simulated nodes
//	backup      the controller in the middle of backups, 20 % of the requested kills;
//	            in the end a backup is restored while instances run
//	events      the controller while it logs its events to the registry's file and to an
//	            endpoint that sometimes fails; 20 % of the requested kills
//	registry    a registry before each step that changes its storage, in every operation
//	            of its API; its disk is filled there, too, and bits are flipped: see
//	            package crash. The number of kills follows from the steps
//	agent       agents of simulated VMs that pull real templates
//	lazy-pull   the process that pulls a version and serves its disk to a reader, four
//	            runs a kill; the registry goes away, sends 503, flipped bits and cut
//	            responses, the agent is restarted, the node reboots, a disk is full,
//	            and another node that claims to have the version sends wrong bytes
//	qemu        QEMU processes of real guests that boot or resume from a saved state, and
//	            sometimes the agent
//	save        controller, registry and agents, while simulated VMs are saved,
//	            restarted, and terminated in the middle of every step
//	qemu-save   the agent or QEMU in saves and restarts of real guests; 20 % of the
//	            requested kills, at least 8, since each needs a separate guest
//
// The first runs alone. Then the two with real guests run one after the other, and concurrently
// with them the other six.
//
// The whole history of the first, every call and every event of a watch, is checked against the
// rules in docs/testing.md.
//
// Every event that follows from what was acknowledged must be at both destinations of the events
// target at least once, and those of an instance first in their order.
//
// Every version that a save has made is started in the end, and its guest is asked for what it had
// in memory and on disk. A version that a save left behind although a termination had ended its
// request is not a fault (decision 14); it is counted.
//
// It is not a benchmark and not a unit test: it builds the real programs, runs them as processes on
// loopback addresses and ends them with SIGKILL. It kills only processes that it started, or that
// its own agents started below its own directory, by their ID.
//
// Invariant: every figure that it prints was counted in this run; what could not be counted fails
// the run.
package fault
