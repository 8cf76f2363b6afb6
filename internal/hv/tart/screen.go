package tart

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/rfb"
)

var _ hv.ConsoleDriver = (*Driver)(nil)

const screenTimeout = 10 * time.Second // for tart to print the address of its VNC server, and to accept

// Screen returns a connection to the guest's screen.
func (d *Driver) Screen(ctx context.Context, id string) (net.Conn, error) {
	vm, err := d.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if vm.Status != hv.Running {
		return nil, fmt.Errorf("tart: VM %s: %w", id, hv.ErrNotRunning)
	}
	m := d.machine(id)
	r, err := m.recordNow()
	if err != nil {
		return nil, err
	}
	server, password, err := m.dialScreen(ctx)
	if err != nil {
		return nil, fmt.Errorf("tart: screen of VM %s: %w", id, err)
	}
	viewer, gate := net.Pipe()
	passwords := rfb.Passwords{Server: password}
	if r.Spec.VNC != nil {
		passwords.Viewer = r.Spec.VNC.Password
	}
	go func() {
		if err := rfb.Relay(context.WithoutCancel(ctx), gate, server, passwords); err != nil {
			d.log.Info("the screen of a VM was closed", "vm", id, "error", err)
		}
	}()
	return viewer, nil
}

// dialScreen connects to tart's VNC server of the VM.
func (m *machine) dialScreen(ctx context.Context) (net.Conn, string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, screenTimeout,
		errors.New("tart has not started its VNC server in time"))
	defer cancel()
	for {
		address, password := m.runLog().vncServer()
		if address != "" {
			var d net.Dialer
			c, err := d.DialContext(ctx, "tcp", address)
			return c, password, err
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return nil, "", err
		}
	}
}
