// Command mac tests clouds with Macs: the real controller, registry and agents, and nodes that are fake Macs.
//
//	go run ./test/mac [-only REGEXP] [-json FILE] [-keep]
//
// A fake Mac is an agent with the driver tart that finds test/fakes/tart first in PATH, with a data directory, a home
// and DHCP leases that no other Mac has. The program and the fake have no switch for each other. Each case states what
// a user of the cloud must see, and what may be left on a Mac: no process, no directory of a VM, no half clone.
//
// It is run as root, since each Mac has its own /var, and one a small disk. It does not show what differs between
// test/fakes/tart and a Mac: its package comment says what is imitated.
//
// Invariant: a required case that is absent, skipped or failed makes the run fail, and the run ends only processes that
// it or one of its agents has started.
package main
