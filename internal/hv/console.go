package hv

import (
	"context"
	"net"
)

// ConsoleDriver is a driver whose VMs can be looked at; one that can says CanConsole.
type ConsoleDriver interface {
	// Screen returns a new connection to the screen of a VM that runs, on which that speaks
	// RFB (RFC 6143) as a server does. With Spec.VNC it asks for the password, else for
	// none: whoever calls has seen to it who may look. The connection ends with the VM; it is
	// the caller's to close. No port of the host is opened for it.
	Screen(ctx context.Context, id string) (net.Conn, error)
}
