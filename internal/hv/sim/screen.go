package sim

import (
	"context"
	"fmt"
	"net"

	"github.com/buildyard/buildyard/internal/hv"
)

var _ hv.ConsoleDriver = (*Host)(nil)

// Screen returns a viewer's connection to a screen that shows the name of the VM, the time and the
// typed text. It asks for the password of Spec.VNC, as a real one does.
func (h *Host) Screen(_ context.Context, id string) (net.Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.vms[id]
	if !ok {
		return nil, fmt.Errorf("sim: %w: %s", hv.ErrNotFound, id)
	}
	h.applyPlannedEndLocked(r, h.clock.Now())
	if r.VM.Status != hv.Running {
		return nil, fmt.Errorf("sim: VM %s: %w", id, hv.ErrNotRunning)
	}
	s := &screen{name: r.VM.Name, clock: h.clock}
	if r.Spec.VNC != nil {
		s.password = r.Spec.VNC.Password
	}
	gone := r.ended
	theirs, ours := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		defer ours.Close()
		s.serve(ours)
	}()
	go func() {
		select {
		case <-gone:
			_ = ours.Close()
		case <-served:
		}
	}()
	return theirs, nil
}
