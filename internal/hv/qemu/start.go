package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/failurelog"
)

// Start boots a VM and waits until it is ready.
func (d *Driver) Start(ctx context.Context, spec hv.Spec) (hv.VM, error) {
	spec, err := d.acceptSpec(spec)
	if err != nil {
		return hv.VM{}, fmt.Errorf("qemu: %w", err)
	}
	if d.ctx.Err() != nil {
		return hv.VM{}, fmt.Errorf("qemu: %w", errClosed)
	}
	m, err := d.ensureMachine(spec)
	if err != nil {
		return hv.VM{}, fmt.Errorf("qemu: start VM %s: %w", spec.ID, err)
	}
	defer m.starts.Add(-1)
	defer d.releaseUSBReservation(m)
	timeout := spec.BootTimeout
	if timeout == 0 {
		timeout = hv.DefaultBootTimeout
	}
	boot, cancel := context.WithTimeoutCause(ctx, timeout, hv.ErrBootTimeout)
	defer cancel()
	if err := m.endAbandonedResume(boot, spec); err != nil {
		return hv.VM{}, fmt.Errorf("qemu: start VM %s: %w", spec.ID, err)
	}
	r, err := m.bootUntilReady(boot, spec)
	if err == nil {
		err = farm.MarkFailure(m.refreshGuest(boot, r), "", farm.StepBoot)
	}
	if err == nil {
		err = farm.MarkFailure(m.configureGuest(boot, r), "", farm.StepBoot)
	}
	if err != nil {
		if cause := context.Cause(boot); cause != nil {
			err = cause
		}
		return hv.VM{}, fmt.Errorf("qemu: start VM %s: %w", spec.ID, m.failStart(ctx, r, err))
	}
	return m.describeVM(), nil
}

// acceptSpec fills in the defaults of a spec and refuses what this driver cannot do.
func (d *Driver) acceptSpec(s hv.Spec) (hv.Spec, error) {
	err := s.Validate()
	if err == nil {
		s, err = s.WithDefaults()
	}
	if err != nil {
		return s, err
	}
	switch pc := s.PCSettings(); {
	case s.Apple != nil:
		return s, hv.RefusalMacOS.Error(d.host.Driver)
	case s.Arch != "" && s.Arch != d.host.Arch:
		return s, hv.RefusedError("architecture %q: this driver runs %s guests", s.Arch, d.host.Arch)
	case pc.Firmware != "" && pc.Firmware != d.platform.firmware:
		return s, hv.RefusedError(
			"firmware %q: this driver offers %q; set it in the local template and push that", pc.Firmware,
			d.platform.firmware)
	}
	for _, disk := range s.Disks {
		if disk.Format != "raw" && disk.Format != "qcow2" {
			return s, hv.RefusedError("disk format %q: raw or qcow2", disk.Format)
		}
		if disk.Socket != "" && disk.Format != "raw" { // the guest would see the file instead of the disk in it
			return s, hv.RefusedError("disk format %q behind a socket: only a raw disk can be served", disk.Format)
		}
	}
	if err := d.acceptState(s); err != nil || d.isRunning(s.ID) {
		return s, err // the files that a running VM was made from may be removed
	}
	return s, errors.Join(acceptSize(s), d.acceptNetwork(s), d.acceptUSB(s))
}

// configureGuest sets up what a guest can only get once it is ready: the space that its disk has
// grown by since its state was saved, and its USB devices. A second call changes nothing.
func (m *machine) configureGuest(ctx context.Context, r *run) error {
	q, err := r.awaitMonitor(ctx)
	if err != nil {
		return err
	}
	if err := m.growDisk(ctx, q); err != nil {
		return err
	}
	return m.plugUSB(ctx, q)
}

// ensureMachine returns the machine of a spec. A new one appears in the directory atomically, so that List
// and Delete know it whatever happens next. Its USB devices are reserved for it until started is
// called. It counts as one more start.
func (d *Driver) ensureMachine(spec hv.Spec) (m *machine, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() {
		if err == nil {
			m.starts.Add(1)
		}
	}()
	m, known := d.machines[spec.ID]
	if known {
		if err := m.checkSameOrigin(spec); err != nil || m.currentRun() != nil {
			return m, err
		}
	}
	if err := d.usbFreeLocked(spec); err != nil {
		return nil, err
	}
	if known {
		m.startingUSB = spec.PCSettings().USB
		return m, nil
	}
	m = d.newMachine(spec.ID)
	m.startingUSB = spec.PCSettings().USB
	m.config = vmConfig{Spec: spec, CreatedAt: time.Now()}
	temp, err := os.MkdirTemp(d.opts.Dir, tempPrefix)
	if err != nil {
		return nil, err
	}
	err = writeJSON(temp, configFile, m.config)
	d.stepHook("create: config")
	if err == nil {
		err = os.Rename(temp, m.dir)
	}
	if err != nil {
		_ = os.RemoveAll(temp)
		return nil, err
	}
	d.stepHook("create: renamed")
	d.machines[spec.ID] = m
	return m, syncDir(d.opts.Dir)
}

// checkSameOrigin refuses a start of a VM from something other than it was made from.
func (m *machine) checkSameOrigin(spec hv.Spec) error {
	m.mu.Lock()
	old := m.config
	m.mu.Unlock()
	if old.Spec.UUID != spec.UUID || !slices.EqualFunc(old.Spec.Disks, spec.Disks, hv.Disk.Equal) {
		return hv.RefusedError("it exists with another UUID or other disks")
	}
	if !old.Refreshed && !sameState(old.Spec.State, spec.State) {
		return hv.RefusedError("it exists with another suspended state, or without one")
	}
	return nil
}

// bootUntilReady boots a VM that does not run and waits until its guest is ready. A host port that was taken
// between its choice and QEMU's start is chosen again, also when an agent that was killed had
// started that QEMU.
func (m *machine) bootUntilReady(ctx context.Context, spec hv.Spec) (*run, error) {
	avoid := map[int]bool{}
	for {
		r, err := m.currentRun(), error(nil)
		if r == nil {
			r, err = m.boot(ctx, spec, avoid)
		}
		if err == nil {
			err = farm.MarkFailure(r.awaitReady(ctx, spec.WaitsForAddress()), "", farm.StepBoot)
		}
		taken, isPort := m.portConflict()
		if !errors.Is(err, errProcessGone) || !isPort {
			return r, err
		}
		if err := avoidPort(avoid, taken); err != nil {
			return r, err
		}
	}
}

// boot starts QEMU and waits until its monitor answers, and its state is loaded.
func (m *machine) boot(ctx context.Context, spec hv.Spec, avoid map[int]bool) (*run, error) {
	r, err := m.spawn(ctx, spec, avoid)
	if r == nil {
		m.driver.releasePorts(m.id)
		if spec.VLAN != 0 {
			m.driver.pruneVLANs()
		}
	}
	if err != nil {
		return r, err
	}
	q, err := r.awaitMonitor(ctx)
	if err == nil && m.resumes(spec) {
		err = m.loadState(ctx, r, q, spec.State.Path)
	}
	return r, err
}

// awaitReady waits for the guest: its agent's port, one sync, its address.
func (r *run) awaitReady(ctx context.Context, needNetwork bool) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.exited:
		return errProcessGone
	case <-r.agentOpened:
	}
	for try := 0; ; try++ {
		err := r.guestAgent.ping(ctx)
		if err == nil && r.queryAddress(ctx) != nil && needNetwork {
			err = errNoAddress
		}
		if err == nil {
			return nil
		}
		select {
		case <-r.exited:
			return errProcessGone
		default:
		}
		if err := sleep(ctx, min(time.Duration(try+1)*20*time.Millisecond, 200*time.Millisecond)); err != nil {
			return err
		}
	}
}

var errNoAddress = errors.New("the guest has not reported an IP address")

// queryAddress asks the guest for its first address that other machines can use.
func (r *run) queryAddress(ctx context.Context) error {
	var interfaces []struct {
		Addresses []struct {
			IP string `json:"ip-address"`
		} `json:"ip-addresses"`
	}
	if err := r.guestAgent.call(ctx, "guest-network-get-interfaces", nil, &interfaces); err != nil {
		return err
	}
	for _, i := range interfaces {
		for _, a := range i.Addresses {
			ip, err := netip.ParseAddr(a.IP)
			if err != nil || !ip.Is4() || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
				continue
			}
			r.mu.Lock()
			r.ip = ip.String()
			r.mu.Unlock()
			return nil
		}
	}
	return errNoAddress
}

// isConnectionLost reports whether a connection to QEMU ended, which is the first sign of its end.
func isConnectionLost(err error) bool {
	return slices.ContainsFunc([]error{
		io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNREFUSED,
	}, func(sign error) bool {
		return errors.Is(err, sign)
	})
}

// failStart ends a start that failed and returns the error with the known reasons. The VM stays,
// stopped, with that as its Failure.
func (m *machine) failStart(ctx context.Context, r *run, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*killTimeout)
	defer cancel()
	if r == nil {
		e := runEnd{At: time.Now(), Failure: "the start failed: " + err.Error()}
		m.mu.Lock()
		m.lastEnd = e
		m.mu.Unlock()
		return errors.Join(err, writeJSON(m.dir, endFile, e))
	}
	gone := r.hasEnded() || isConnectionLost(err) && m.awaitEnd(ctx, r, quitTimeout) == nil
	if q, ok := r.currentQMP(); ok && !gone {
		r.saveSerial(ctx, q)
	}
	if gone { // without a request; finish recorded the reason
		m.mu.Lock()
		err = farm.MarkFailure(fmt.Errorf("%w: %s", err, m.lastEnd.Failure), m.lastEnd.FailureClass, "")
		m.mu.Unlock()
	}
	if tail := sanitizedTail(failurelog.LastBytes(filepath.Join(m.dir, serialFile), logTailBytes)); tail != "" {
		err = fmt.Errorf("%w; end of the serial console: %s", err, tail)
	}
	err = m.withFailureLog(err)
	if gone {
		return err
	}
	return errors.Join(err, m.killRun(ctx, r, runEnd{Failure: "the start failed: " + err.Error()}))
}
