package qemu

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// quitTimeout is how long QEMU gets to close its disks before it is killed.
const quitTimeout = 3 * time.Second

// Stop ends a VM: orderly, by its guest; by force, by QEMU itself or a kill.
func (d *Driver) Stop(ctx context.Context, id string, how hv.StopMode) error {
	m, err := d.findMachine(id)
	if err != nil {
		return err
	}
	r := m.currentRun()
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
	if q, ok := r.currentQMP(); ok {
		quit, cancel := context.WithTimeout(ctx, quitTimeout)
		defer cancel()
		if q.call(quit, "quit", nil, nil) == nil && m.awaitEnd(quit, r, quitTimeout) == nil {
			return nil
		}
	}
	return m.killRun(ctx, r, runEnd{})
}

// shutDown asks the guest's agent, then its power button, and reports whether the guest was off in
// time.
func (m *machine) shutDown(ctx context.Context, r *run) bool {
	ctx, cancel := context.WithTimeout(ctx, m.driver.opts.StopTimeout)
	defer cancel()
	select {
	case <-r.agentOpened:
		m.driver.watchers.Go(func() { // a successful shutdown sends no response
			ask, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_ = r.guestAgent.call(ask, "guest-shutdown", map[string]string{"mode": "powerdown"}, nil)
		})
		if m.awaitEnd(ctx, r, m.driver.opts.StopTimeout/3) == nil {
			return true
		}
	default: // the agent is not up yet
	}
	if q, ok := r.currentQMP(); ok && q.call(ctx, "system_powerdown", nil, nil) != nil {
		m.driver.log.Debug("QEMU rejected the power button event", "vm", m.id)
	}
	return m.awaitEnd(ctx, r, m.driver.opts.StopTimeout) == nil
}
