package tart

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

const (
	orderlyTimeout  = 60 * time.Second // for a guest to shut down
	forceTimeout    = 10 * time.Second
	killSeconds     = 3                // that tart stop waits before it kills
	killTimeout     = 5 * time.Second  // for tart stop, and for the end of a killed process
	shutdownTimeout = 20 * time.Second // for one request
	shutdownDelay   = time.Second      // between requests
)

// shutdownArgs ask a macOS guest to shut down immediately; tart stop does not ask it.
var shutdownArgs = []string{"sudo", "-n", "/sbin/shutdown", "-h", "now"}

// Stop ends a VM and keeps its disks.
func (d *Driver) Stop(ctx context.Context, id string, how hv.StopMode) error {
	if !hv.ValidID(id) {
		return fmt.Errorf("tart: %w: %s", hv.ErrNotFound, id)
	}
	m := d.machine(id)
	m.busy.Lock()
	defer m.busy.Unlock()
	return m.end(ctx, how)
}

// end stops the VM if it runs, and its forwarder.
func (m *machine) end(ctx context.Context, how hv.StopMode) error {
	vm, err := m.describe()
	if err != nil {
		return err
	}
	if vm.Status == hv.Running {
		err = m.endRun(ctx, how)
		switch {
		case errors.Is(err, errDamagedRecord):
			err = m.killOwner(ctx)
		case err != nil: // the VM continues with its ports, and its end is no longer requested
			err = errors.Join(err, m.updateRecord(func(r *record) { r.StopRequested = false }))
		}
	}
	if err == nil {
		err = m.stopForwarder(ctx)
	}
	if err != nil {
		return fmt.Errorf("tart: stop VM %s: %w", m.id, err)
	}
	_, err = m.describe() // records the end
	return err
}

func (m *machine) endRun(ctx context.Context, how hv.StopMode) error {
	if err := m.updateRecord(func(r *record) { r.StopRequested = true }); err != nil {
		return err
	}
	if how == hv.StopOrderly {
		err := m.shutDown(ctx, orderlyTimeout)
		if err == nil || ctx.Err() != nil {
			return err
		}
		m.driver.log.WarnContext(ctx, "the guest did not shut down and is ended by force", "vm", m.id, "error", err)
	}
	return m.kill(ctx)
}

// shutDown asks the guest to shut down and waits until the VM has ended.
func (m *machine) shutDown(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the guest did not shut down within %s", limit))
	defer cancel()
	asked := make(chan error, 1)
	go func() {
		asked <- m.requestShutdown(ctx)
	}()
	err := m.awaitEnd(ctx)
	cancel()
	if asking := <-asked; err != nil && asking != nil {
		return fmt.Errorf("%w (%w)", err, asking)
	}
	return err
}

// requestShutdown asks the guest to shut down, and again while that fails: a call may end before it has reached the
// guest. The guest may also end before the call has its answer, so only the end of the VM counts.
func (m *machine) requestShutdown(ctx context.Context) error {
	for {
		request, cancel := context.WithTimeout(ctx, shutdownTimeout)
		err := m.runInGuest(request, shutdownArgs)
		cancel()
		if err == nil || sleep(ctx, shutdownDelay) != nil {
			return err
		}
	}
}

// kill ends the VM by force.
func (m *machine) kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, forceTimeout)
	defer cancel()
	if err := m.awaitProcess(ctx); err != nil {
		return err
	}
	r, err := m.recordNow()
	if err != nil {
		return err
	}
	pid, running, err := m.isRunning(r)
	if err != nil || !running {
		return err
	}
	owner, ownerErr := cliproc.Find(pid) // before tart stop, after which another process may have the PID
	// tart loses a request of its first moments, so its answer decides nothing.
	_, stopErr := m.driver.cli.run(ctx, killTimeout, "stop", "--timeout", strconv.Itoa(killSeconds), m.id)
	if m.awaitEndWithin(ctx, time.Second) == nil {
		return nil
	}
	if ownerErr == nil {
		stopErr = errors.Join(stopErr, owner.Kill())
	}
	if err := m.awaitEndWithin(context.WithoutCancel(ctx), killTimeout); err != nil {
		return errors.Join(fmt.Errorf("end the VM by force: %w", err), stopErr)
	}
	return nil
}

// killOwner kills the process that runs a VM without a readable record.
func (m *machine) killOwner(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, forceTimeout)
	defer cancel()
	for {
		pid, running, err := m.isRunning(record{})
		if err != nil || !running {
			return err
		}
		if owner, err := cliproc.Find(pid); err == nil {
			if err := owner.Kill(); err != nil {
				return err
			}
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return err
		}
	}
}

func (m *machine) awaitEndWithin(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return m.awaitEnd(ctx)
}

// awaitProcess waits until a start that has no recorded process has one, or has none any more.
func (m *machine) awaitProcess(ctx context.Context) error {
	for {
		r, err := m.recordNow()
		if err != nil {
			return err
		}
		if _, running, err := m.isRunning(r); err != nil || running || !m.isStarting(r) {
			return err
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// awaitEnd waits until the VM does not run.
func (m *machine) awaitEnd(ctx context.Context) error {
	for {
		r, err := m.recordNow()
		if err != nil {
			return err
		}
		if _, running, err := m.isRunning(r); err != nil || !running {
			return err
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// recordNow reads the record.
func (m *machine) recordNow() (record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readRecord()
}
