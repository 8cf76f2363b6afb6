package hv

import (
	"fmt"

	"github.com/buildyard/buildyard/internal/farm"
)

// Where a driver looks for ports of the host that a Spec leaves to it.
const (
	FirstHostPort = 10000 // of port rules
	FirstVNCPort  = 5900  // of screens
	LastVNCPort   = FirstHostPort - 1

	// AnyIPv4 is the host address of a rule without one: CI executors connect from other machines.
	AnyIPv4 = "0.0.0.0"
)

// TakenPortError returns the error for a rule with effective address and port whose requested port
// cannot be opened.
func (p PortRule) TakenPortError() error {
	return networkError(
		"port rule %q: host port %d of %s cannot be opened on this node: another program has it, or only root may "+
			"open it, or the address is not the node's; leave the host port out, or ask for another", p.Name,
		p.HostPort, p.HostIP)
}

// NoHostPortError returns the error for a rule for which no port is free.
func (p PortRule) NoHostPortError() error {
	return networkError("no free host port from %d on for port rule %q", FirstHostPort, p.Name)
}

// TakenVNCPortError returns the error for a requested port of a screen that cannot be opened.
func TakenVNCPortError(port int, err error) error {
	return networkError("VNC port %d of the host cannot be used; leave it out or choose another one: %w", port, err)
}

// NoVNCPortError returns the error for a screen for which no port is free.
func NoVNCPortError() error {
	return networkError("no free VNC port from %d to %d", FirstVNCPort, LastVNCPort)
}

// networkError returns an error of the class network.
func networkError(format string, args ...any) error {
	return farm.MarkFailure(fmt.Errorf(format, args...), farm.FailureNetwork, "")
}
