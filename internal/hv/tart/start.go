package tart

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

const (
	createTimeout = 5 * time.Minute  // for the disks of a VM
	lockTimeout   = 30 * time.Second // for tart to lock the configuration
	limitTries    = 3                // starts that macOS may refuse because of the number of guests
	limitDelay    = 5 * time.Second
	pollInterval  = 20 * time.Millisecond
)

// Start creates a VM's disks, runs it and waits for its guest.
func (d *Driver) Start(ctx context.Context, spec hv.Spec) (hv.VM, error) {
	s, err := d.acceptSpec(spec)
	if err != nil {
		return hv.VM{}, fmt.Errorf("tart: %w", err)
	}
	m := d.machine(s.ID)
	m.busy.Lock()
	defer m.busy.Unlock()
	return m.start(ctx, s)
}

// acceptSpec fills in the defaults of a spec and refuses what tart cannot do.
func (d *Driver) acceptSpec(s hv.Spec) (hv.Spec, error) {
	if err := s.Validate(); err != nil {
		return s, err
	}
	s = s.Clone() // that of the caller stays as it is
	if s.Apple == nil {
		return s, hv.RefusalMacOSOnly.Error("tart")
	}
	if s.State != nil {
		return s, hv.RefusalSuspend.Error("tart")
	}
	s, err := s.WithDefaults()
	if err != nil {
		return s, err
	}
	switch {
	case s.Disks[0].Format != "raw":
		return s, hv.RefusalFormat.Error(s.Disks[0].Format, "tart")
	case s.VLAN != 0:
		return s, hv.RefusalVLAN.Error(s.VLAN, "tart")
	case s.Isolated:
		return s, hv.RefusalIsolated.Error("tart")
	case networkArgs(s.Network, d.opts.Bridge) == nil,
		s.Network == hv.NetworkHost && !d.host.HasCapability(hv.CanNetworkHost):
		return s, hv.RefusalNetwork.Error(s.Network)
	}
	for i, p := range s.Ports {
		if p.Protocol == "udp" {
			return s, hv.RefusalUDP.Error(p.Name)
		}
		s.Ports[i].Protocol = "tcp"
	}
	return s, nil
}

// networkArgs returns the arguments of tart run for a network mode; nil if tart does not have it.
func networkArgs(mode hv.NetworkMode, bridge string) []string {
	switch mode {
	case hv.NetworkShared, hv.NetworkNAT:
		return []string{}
	case hv.NetworkHost:
		return []string{"--net-host"}
	case hv.NetworkBridge:
		if bridge != "" {
			return []string{"--net-bridged", bridge}
		}
	}
	return nil
}

// start runs the VM unless it runs, and completes a start that an earlier agent did not. A failed start leaves
// a stopped VM with a Failure.
func (m *machine) start(ctx context.Context, s hv.Spec) (hv.VM, error) {
	vm, err := m.describe()
	if errors.Is(err, hv.ErrNotFound) {
		err = farm.MarkFailure(m.create(ctx, s), "", farm.StepCreateDisk)
	}
	var r record
	if err == nil && vm.Status == hv.Running {
		if r, err = m.awaitRecordedStart(ctx); err == nil && r.Ready {
			return m.describe()
		}
	}
	if err != nil {
		return hv.VM{}, fmt.Errorf("tart: start VM %s: %w", m.id, err)
	}
	if r.StoppedAt.IsZero() && !r.StartedAt.IsZero() {
		err = m.explainLimit(ctx, m.completeStart(ctx, r.Spec))
	} else {
		err = m.runUntilReady(ctx, s)
	}
	if err == nil {
		err = m.updateRecord(func(r *record) { r.Ready, r.BySSH = true, m.useSSH.Load() })
	}
	if err != nil {
		err = m.endFailedStart(ctx, err)
		return hv.VM{}, fmt.Errorf("tart: start VM %s: %w", m.id, err)
	}
	m.driver.limit.record(time.Time{})
	return m.describe()
}

// create makes the VM's directory. A directory without a record is an unfinished removal.
func (m *machine) create(ctx context.Context, s hv.Spec) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	if err := m.checkMAC(ctx, s.MAC); err != nil {
		return err
	}
	if err := os.RemoveAll(m.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return m.createDirectory(ctx, s)
}

// checkMAC refuses the address of another VM that runs.
func (m *machine) checkMAC(ctx context.Context, mac string) error {
	vms, err := m.driver.List(ctx)
	if err != nil {
		return err
	}
	for _, vm := range vms {
		if vm.ID != m.id && vm.Status == hv.Running && strings.EqualFold(vm.MAC, mac) {
			return hv.RefusalMACInUse.Error(mac, vm.ID)
		}
	}
	return nil
}

// awaitRecordedStart returns the record of a VM that runs, once an earlier agent's start of it has a process
// or is known to have none.
func (m *machine) awaitRecordedStart(ctx context.Context) (record, error) {
	if err := m.awaitProcess(ctx); err != nil {
		return record{}, err
	}
	if _, err := m.describe(); err != nil { // records the end of a start without a process
		return record{}, err
	}
	return m.recordNow()
}

// runUntilReady runs tart and waits until the guest is ready and its ports are forwarded. macOS may count
// a guest that has just ended, so a refusal because of the number of guests is repeated.
func (m *machine) runUntilReady(ctx context.Context, s hv.Spec) error {
	for try := 1; ; try++ {
		err := m.runOnce(ctx, s)
		if !errors.Is(err, errGuestLimit) || try == limitTries {
			return m.explainLimit(ctx, err)
		}
		if err := errors.Join(m.stopForwarder(ctx), sleep(ctx, limitDelay)); err != nil {
			return err
		}
	}
}

func (m *machine) runOnce(ctx context.Context, s hv.Spec) error {
	if err := m.run(ctx, s); err != nil {
		return err
	}
	return m.completeStart(ctx, s)
}

// bootRemedy is what to do about a guest that was not ready in time.
const bootRemedy = "raise SVC_START_TIMEOUT if it needs longer, or check the guest agent, the SSH server and the " +
	"user of its image"

// completeStart waits until the guest of a VM that runs is ready, and forwards its ports.
func (m *machine) completeStart(ctx context.Context, s hv.Spec) error {
	timeout := s.BootTimeout
	if timeout == 0 {
		timeout = hv.DefaultBootTimeout
	}
	boot, cancel := context.WithTimeoutCause(ctx, timeout, hv.ErrBootTimeout)
	defer cancel()
	err := m.startForwarder(boot, s) // while the guest boots
	if err == nil {
		err = farm.MarkFailure(m.awaitReady(boot, s), "", farm.StepBoot)
	} else if ended := m.endedEarly(); ended != nil { // a forwarder ends with its VM
		err = ended
	} else if boot.Err() == nil {
		err = farm.MarkFailure(err, farm.FailureNetwork, "")
	}
	if err != nil && errors.Is(context.Cause(boot), hv.ErrBootTimeout) && ctx.Err() == nil {
		return fmt.Errorf("%w (%s): %w; %s", hv.ErrBootTimeout, timeout, err, bootRemedy)
	}
	return err
}

// run starts tart and waits until it has locked the VM.
func (m *machine) run(ctx context.Context, s hv.Spec) error {
	if err := m.checkMAC(ctx, s.MAC); err != nil {
		return err
	}
	log := filepath.Join(m.dir, runLogFile)
	if err := os.Remove(log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := updateBundleConfig(m.dir, s); err != nil {
		return err
	}
	err := m.updateRecord(func(r *record) {
		r.Spec, r.Version = s, m.driver.host.Version
		r.StartedAt, r.StoppedAt, r.StopRequested, r.Failure = recordTime(), time.Time{}, false, ""
		r.Process, r.Ready = cliproc.Process{}, false
	})
	if err != nil {
		return err
	}
	args := append([]string{"run", "--no-graphics", "--no-audio", "--no-clipboard", "--vnc-experimental"},
		networkArgs(s.Network, m.driver.opts.Bridge)...)
	process, err := cliproc.StartDetached(m.driver.cli.command(0, append(args, m.id)...), log)
	if err != nil {
		return errors.Join(err, m.updateRecord(func(r *record) { r.StoppedAt = recordTime() }))
	}
	if err := m.updateRecord(func(r *record) { r.Process = process }); err != nil {
		return errors.Join(err, process.Kill())
	}
	return m.awaitLock(ctx, process)
}

var errNotBegun = fmt.Errorf("tart run did not begin the VM within %s; its output is in the log of the VM; restart "+
	"the Mac if that is repeated", lockTimeout)

// awaitLock waits until tart has locked the configuration, or has ended.
func (m *machine) awaitLock(ctx context.Context, process cliproc.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lockTimeout, errNotBegun)
	defer cancel()
	for {
		pid, err := cliproc.LockOwner(filepath.Join(m.dir, configFile))
		if err != nil || pid != 0 {
			return err
		}
		if !process.IsAlive() {
			return m.runFailure()
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// runFailure returns why tart run has ended.
func (m *machine) runFailure() error {
	why := readRunLog(filepath.Join(m.dir, runLogFile)).failure()
	if strings.HasPrefix(why, limitText) {
		return errGuestLimit
	}
	return errors.New(why)
}

// endFailedStart ends the VM of a failed start and records the reason. It may run although ctx has ended.
func (m *machine) endFailedStart(ctx context.Context, reason error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*forceTimeout)
	defer cancel()
	failure := reason.Error()
	if errors.Is(reason, context.Canceled) {
		failure = "the start was canceled"
	}
	err := m.updateRecord(func(r *record) { r.Failure = failure })
	if err == nil {
		err = errors.Join(m.kill(ctx), m.stopForwarder(ctx))
	}
	if err == nil {
		_, err = m.describe() // records the end
	}
	if !errors.Is(reason, context.Canceled) {
		reason = m.withFailureLog(reason)
	}
	return errors.Join(reason, err)
}

// sleep waits; it returns why ctx has ended if it has.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
