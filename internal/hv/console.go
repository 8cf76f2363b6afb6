package hv

import (
	"context"
	"net"
)

// ConsoleDriver is implemented by drivers that can show a VM's screen; they report CanConsole.
type ConsoleDriver interface {
	// Screen returns a new connection to the screen of a running VM, which serves RFB (RFC 6143) on
	// it. The screen asks for a password only with Spec.VNC: otherwise the caller has authorized
	// the viewer. The connection ends with the VM; the caller closes it. No port of the host is
	// opened for it.
	Screen(ctx context.Context, id string) (net.Conn, error)
}
