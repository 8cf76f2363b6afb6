package anka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

const (
	limitTries = 3 // starts that may be refused because of the number of guests
	limitDelay = 5 * time.Second

	// Texts in messages of failed starts.
	limitText = "maximum number of running instances exceeded"
	childText = "No child processes"
)

// Start clones the VM, runs it and waits for its guest.
func (d *Driver) Start(ctx context.Context, spec hv.Spec) (hv.VM, error) {
	s, err := d.acceptSpec(spec)
	if err != nil {
		return hv.VM{}, fmt.Errorf("anka: %w", err)
	}
	m := d.machine(s.ID)
	m.busy.Lock()
	defer m.busy.Unlock()
	vm, err := m.start(ctx, s)
	if err != nil {
		return hv.VM{}, fmt.Errorf("anka: start VM %s: %w", s.ID, err)
	}
	return vm, nil
}

// Restart ends a VM by force and starts it from its disk.
func (d *Driver) Restart(ctx context.Context, id string, edit func(*hv.Spec)) (hv.VM, error) {
	if !hv.ValidID(id) {
		return hv.VM{}, notFoundError(id)
	}
	r, _, err := d.machine(id).loadRecord()
	if err != nil {
		return hv.VM{}, err
	}
	after := r.Spec.Clone()
	if edit != nil {
		edit(&after)
	}
	err = hv.CheckRestart(r.Spec, after)
	if err == nil {
		_, err = d.acceptSpec(after) // before the VM is stopped
	}
	if err != nil {
		return hv.VM{}, fmt.Errorf("anka: restart VM %s: %w", id, err)
	}
	if err := d.Stop(ctx, id, hv.StopForce); err != nil {
		return hv.VM{}, err
	}
	return d.Start(ctx, after)
}

// start runs the VM unless it runs, and finishes what an earlier agent has left half done. A failed
// start leaves a stopped VM with a Failure.
func (m *machine) start(ctx context.Context, s hv.Spec) (hv.VM, error) {
	vm, err := m.describe(ctx)
	if err != nil && !errors.Is(err, hv.ErrNotFound) {
		return vm, err
	}
	if err == nil && vm.Status == hv.Running {
		if r, _, err := m.loadRecord(); err != nil || r.IsReady {
			return vm, err
		}
	}
	if err := m.checkMAC(ctx, s.MAC); err != nil {
		return vm, err
	}
	if err != nil {
		if err := writeJSON(m.file(recordSuffix), record{Spec: s, CreatedAt: recordTime()}); err != nil {
			return vm, err
		}
	}
	m.setStarting(true)
	defer m.setStarting(false)
	if err := m.runUntilReady(ctx, s, vm.Status == hv.Running); err != nil {
		return vm, m.endFailedStart(ctx, err)
	}
	return m.describe(ctx)
}

// runUntilReady makes the VM, starts it unless it runs, and waits until its guest is ready.
func (m *machine) runUntilReady(ctx context.Context, s hv.Spec, runs bool) error {
	if !runs {
		if err := m.make(ctx, s); err != nil {
			return farm.MarkFailure(err, "", farm.StepCreateDisk)
		}
		if err := m.run(ctx, s); err != nil {
			return err
		}
	}
	timeout := s.BootTimeout
	if timeout == 0 {
		timeout = hv.DefaultBootTimeout
	}
	boot, cancel := context.WithTimeoutCause(ctx, timeout, hv.ErrBootTimeout)
	defer cancel()
	err := farm.MarkFailure(m.awaitReady(boot, s), "", farm.StepBoot)
	if err == nil {
		err = m.recordReady(boot, s)
	}
	if err != nil && errors.Is(context.Cause(boot), hv.ErrBootTimeout) && ctx.Err() == nil {
		return fmt.Errorf("%w (%s): %w", hv.ErrBootTimeout, timeout, err)
	}
	return err
}

// make clones the VM's image and configures the clone. One that is half made is made again.
func (m *machine) make(ctx context.Context, s hv.Spec) error {
	ctx, cancel := context.WithTimeout(ctx, importTimeout+cloneTimeout)
	defer cancel()
	lock, err := lockFile(ctx, m.file(lockSuffix))
	if err != nil {
		return err
	}
	defer lock.Close()
	r, _, err := m.loadRecord()
	if err != nil {
		return err
	}
	if r.IsMade && m.isConfigured(r.Spec, s) {
		return nil
	}
	if !r.IsMade {
		if err := m.cli.remove(ctx, m.name()); err != nil {
			return err
		}
		image, err := m.driver.importImage(ctx, m.cli, s.Disks[0].Path)
		if err != nil {
			return err
		}
		c := call{timeout: cloneTimeout, lock: lock, args: []string{"clone", image, m.name()}}
		if err := m.cli.ask(ctx, c, nil); err != nil {
			return err
		}
	}
	shown, err := m.cli.show(ctx, m.name())
	if err != nil {
		return err
	}
	if shown.Status == statusFailed {
		if err := m.force(ctx); err != nil {
			return err
		}
	}
	if err := m.configure(ctx, s, shown.HardDrive); err != nil {
		return err
	}
	return m.updateRecord(func(r *record) { r.Spec, r.IsMade = s, true })
}

// run starts the VM. One that has failed is stopped before. anka may count a guest that has just ended,
// so a refusal is repeated.
func (m *machine) run(ctx context.Context, s hv.Spec) error {
	shown, err := m.cli.show(ctx, m.name())
	if err == nil && shown.Status == statusFailed {
		err = m.force(ctx)
	}
	if err != nil {
		return err
	}
	err = m.updateRecord(func(r *record) {
		r.Spec, r.Version, r.Ports, r.IsReady = s, m.driver.host.Version, nil, false
		r.StartedAt, r.StoppedAt, r.StopRequested, r.Failure = recordTime(), time.Time{}, false, ""
	})
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		err := m.cli.ask(ctx, call{timeout: startTimeout, args: []string{"start", m.name()}}, nil)
		if err == nil || try == limitTries || !strings.Contains(err.Error(), limitText) {
			return m.explain(ctx, err)
		}
		if waited := sleep(ctx, limitDelay); waited != nil {
			return errors.Join(waited, err)
		}
	}
}

// explain adds to the failure of a start what to do.
func (m *machine) explain(ctx context.Context, err error) error {
	if err != nil && strings.Contains(err.Error(), limitText) {
		err = farm.MarkFailure(err, farm.FailureLicense, "")
	}
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), childText):
		return fmt.Errorf("%w: a host port of its rules is taken, or the login keychain is locked, or this user has "+
			"no session on the Mac's screen; change the rule, or log in there", err)
	case !strings.Contains(err.Error(), limitText):
		return err
	}
	vms, listErr := m.driver.List(ctx)
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	if slices.ContainsFunc(vms, func(vm hv.VM) bool { return vm.ID != m.id && vm.Status == hv.Running }) {
		return fmt.Errorf("%w: the licenses permit no more on this Mac, those of other programs included", err)
	}
	return fmt.Errorf("%w although none runs here; restart the Mac, unless another program runs guests", err)
}

// recordReady records the ports in effect and that the start is complete.
func (m *machine) recordReady(ctx context.Context, s hv.Spec) error {
	network, err := m.showNetwork(ctx)
	if err != nil {
		return err
	}
	ports, err := portsInEffect(s.Ports, network)
	if err != nil {
		return err
	}
	return m.updateRecord(func(r *record) { r.Ports, r.IsReady = ports, true })
}

// endFailedStart ends the VM of a failed start, removes a half-made one, and records the reason. It may
// run although ctx has ended.
func (m *machine) endFailedStart(ctx context.Context, reason error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*forceTimeout)
	defer cancel()
	r, _, err := m.loadRecord()
	if err == nil {
		if r.IsMade {
			err = m.force(ctx)
		} else {
			err = m.cli.remove(ctx, m.name())
		}
	}
	stoppedAt, failure := recordTime(), reason.Error()
	if errors.Is(reason, context.Canceled) {
		failure = "the start was canceled"
	} else {
		m.writeFailureLog(failure, stoppedAt)
	}
	return errors.Join(reason, err, m.updateRecord(func(r *record) { r.Failure, r.StoppedAt = failure, stoppedAt }))
}
