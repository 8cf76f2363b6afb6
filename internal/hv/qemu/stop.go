package qemu

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// quitGrace is how long QEMU gets to close its disks before it is killed.
const quitGrace = 3 * time.Second

// Stop ends a VM: orderly, by its guest; by force, by QEMU itself or a kill.
func (d *Driver) Stop(ctx context.Context, id string, how hv.StopMode) error {
	m, err := d.machine(id)
	if err != nil {
		return err
	}
	r := m.current()
	if r == nil {
		return nil
	}
	m.recordStopIntent(runEnd{})
	if how == hv.StopOrderly && m.shutDown(ctx, r) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if q, ok := r.link(); ok {
		quit, cancel := context.WithTimeout(ctx, quitGrace)
		defer cancel()
		if q.call(quit, "quit", nil, nil) == nil && m.awaitEnd(quit, r, quitGrace) == nil {
			return nil
		}
	}
	return m.kill(ctx, r, runEnd{})
}

// shutDown asks the guest's agent, then its power button, and reports whether the guest was off in
// time.
func (m *machine) shutDown(ctx context.Context, r *run) bool {
	ctx, cancel := context.WithTimeout(ctx, m.d.opt.StopTimeout)
	defer cancel()
	select {
	case <-r.open:
		m.d.watch.Go(func() { // a successful shutdown sends no response
			ask, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_ = r.agent.call(ask, "guest-shutdown", map[string]string{"mode": "powerdown"}, nil)
		})
		if m.awaitEnd(ctx, r, m.d.opt.StopTimeout/3) == nil {
			return true
		}
	default: // the agent is not up yet
	}
	if q, ok := r.link(); ok && q.call(ctx, "system_powerdown", nil, nil) != nil {
		m.d.log.Debug("QEMU rejected the power button event", "vm", m.id)
	}
	return m.awaitEnd(ctx, r, m.d.opt.StopTimeout) == nil
}
