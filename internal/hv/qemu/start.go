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

	"github.com/buildyard/buildyard/internal/hv"
)

// Start boots a VM and waits until it is ready.
func (d *Driver) Start(ctx context.Context, spec hv.Spec) (hv.VM, error) {
	spec, err := d.accept(spec)
	if err != nil {
		return hv.VM{}, fmt.Errorf("qemu: %w", err)
	}
	if d.quit.Err() != nil {
		return hv.VM{}, fmt.Errorf("qemu: %w", errClosed)
	}
	m, err := d.ensure(spec)
	if err != nil {
		return hv.VM{}, fmt.Errorf("qemu: start VM %s: %w", spec.ID, err)
	}
	defer d.started(m)
	timeout := spec.BootTimeout
	if timeout == 0 {
		timeout = hv.DefaultBootTimeout
	}
	boot, cancel := context.WithTimeoutCause(ctx, timeout, hv.ErrBootTimeout)
	defer cancel()
	if err := m.abandoned(boot, spec); err != nil {
		return hv.VM{}, fmt.Errorf("qemu: start VM %s: %w", spec.ID, err)
	}
	r, err := m.ready(boot, spec)
	if err == nil {
		err = m.refresh(boot, r)
	}
	if err == nil {
		err = m.configureGuest(boot, r)
	}
	if err != nil {
		if cause := context.Cause(boot); cause != nil {
			err = cause
		}
		return hv.VM{}, fmt.Errorf("qemu: start VM %s: %w", spec.ID, m.giveUp(ctx, r, err))
	}
	return m.view(), nil
}

// accept fills in the defaults of a spec and refuses what this driver cannot do.
func (d *Driver) accept(s hv.Spec) (hv.Spec, error) {
	err := s.Validate()
	if err == nil {
		s, err = s.WithDefaults()
	}
	if err != nil {
		return s, err
	}
	switch {
	case s.Arch != "" && s.Arch != d.host.Arch:
		return s, hv.Refuse("architecture %q: this driver runs %s guests", s.Arch, d.host.Arch)
	case s.Firmware != "" && s.Firmware != hv.FirmwareBIOS:
		return s, hv.Refuse("firmware %q: this driver offers %q", s.Firmware, hv.FirmwareBIOS)
	}
	for _, disk := range s.Disks {
		if disk.Format != "raw" && disk.Format != "qcow2" {
			return s, hv.Refuse("disk format %q: raw or qcow2", disk.Format)
		}
	}
	if err := d.acceptState(s); err != nil || d.runs(s.ID) {
		return s, err // the files that a running VM was made from may be removed
	}
	return s, errors.Join(acceptSize(s), d.acceptNetwork(s), d.acceptUSB(s))
}

// configureGuest sets up what a guest can only get once it is ready: the space that its disk has
// grown by since its state was saved, and its USB devices. A second call changes nothing.
func (m *machine) configureGuest(ctx context.Context, r *run) error {
	q, err := r.monitorWithin(ctx)
	if err != nil {
		return err
	}
	if err := m.growDisk(ctx, q); err != nil {
		return err
	}
	return m.plugUSB(ctx, q)
}

// ensure returns the machine of a spec. A new one appears in the directory atomically, so that List
// and Delete know it whatever happens next. Its USB devices are reserved for it until started is
// called.
func (d *Driver) ensure(spec hv.Spec) (*machine, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, known := d.machines[spec.ID]
	if known {
		if err := m.accepts(spec); err != nil || m.current() != nil {
			return m, err
		}
	}
	if err := d.usbFreeLocked(spec); err != nil {
		return nil, err
	}
	if known {
		m.starting = spec.USB
		return m, nil
	}
	m = d.newMachine(spec.ID)
	m.starting = spec.USB
	m.cfg = config{Spec: spec, CreatedAt: time.Now()}
	temp, err := os.MkdirTemp(d.opt.Dir, tempPrefix)
	if err != nil {
		return nil, err
	}
	err = writeJSON(temp, configFile, m.cfg)
	d.step("create: config")
	if err == nil {
		err = os.Rename(temp, m.dir)
	}
	if err != nil {
		_ = os.RemoveAll(temp)
		return nil, err
	}
	d.step("create: renamed")
	d.machines[spec.ID] = m
	return m, syncDir(d.opt.Dir)
}

// accepts refuses a start of a VM from something other than it was made from.
func (m *machine) accepts(spec hv.Spec) error {
	m.mu.Lock()
	old := m.cfg
	m.mu.Unlock()
	if old.Spec.UUID != spec.UUID || !slices.EqualFunc(old.Spec.Disks, spec.Disks, hv.Disk.Equal) {
		return hv.Refuse("it exists with another UUID or other disks")
	}
	if !old.Refreshed && !sameState(old.Spec.State, spec.State) {
		return hv.Refuse("it exists with another suspended state, or without one")
	}
	return nil
}

// ready boots a VM that does not run and waits until its guest is ready. A host port that was taken
// between its choice and QEMU's start is chosen again, also when an agent that was killed had
// started that QEMU.
func (m *machine) ready(ctx context.Context, spec hv.Spec) (*run, error) {
	avoid := map[int]bool{}
	for {
		r, err := m.current(), error(nil)
		if r == nil {
			r, err = m.boot(ctx, spec, avoid)
		}
		if err == nil {
			err = r.awaitReady(ctx, spec.WaitsForAddress())
		}
		taken, isPort := m.portConflict()
		if !errors.Is(err, errGone) || !isPort {
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
		m.d.releasePorts(m.id)
		if spec.VLAN != 0 {
			m.d.pruneVLANs()
		}
	}
	if err != nil {
		return r, err
	}
	q, err := r.monitorWithin(ctx)
	if err == nil && m.resumes(spec) {
		err = m.load(ctx, r, q, spec.State.Path)
	}
	return r, err
}

// awaitReady waits for the guest: its agent's port, one sync, its address.
func (r *run) awaitReady(ctx context.Context, needNetwork bool) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.gone:
		return errGone
	case <-r.open:
	}
	for try := 0; ; try++ {
		err := r.agent.sync(ctx)
		if err == nil && r.askAddress(ctx) != nil && needNetwork {
			err = errNoAddress
		}
		if err == nil {
			return nil
		}
		select {
		case <-r.gone:
			return errGone
		default:
		}
		if err := pause(ctx, min(time.Duration(try+1)*20*time.Millisecond, 200*time.Millisecond)); err != nil {
			return err
		}
	}
}

var errNoAddress = errors.New("the guest has not reported an IP address")

// askAddress asks the guest for its first address that other machines can use.
func (r *run) askAddress(ctx context.Context) error {
	var interfaces []struct {
		Addresses []struct {
			IP string `json:"ip-address"`
		} `json:"ip-addresses"`
	}
	if err := r.agent.call(ctx, "guest-network-get-interfaces", nil, &interfaces); err != nil {
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

// cutOff reports whether a connection to QEMU ended, which is the first sign of its end.
func cutOff(err error) bool {
	return slices.ContainsFunc([]error{
		io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNREFUSED,
	}, func(sign error) bool {
		return errors.Is(err, sign)
	})
}

// giveUp ends a start that failed and returns the error with the known reasons. The VM stays,
// stopped, with that as its Failure.
func (m *machine) giveUp(ctx context.Context, r *run, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*killGrace)
	defer cancel()
	if r == nil {
		e := runEnd{At: time.Now(), Failure: "the start failed: " + err.Error()}
		m.mu.Lock()
		m.end = e
		m.mu.Unlock()
		return errors.Join(err, writeJSON(m.dir, endFile, e))
	}
	gone := r.hasEnded() || cutOff(err) && m.awaitEnd(ctx, r, quitGrace) == nil
	if q, ok := r.link(); ok && !gone {
		r.saveSerial(ctx, q)
	}
	if gone { // without a request; finish recorded the reason
		m.mu.Lock()
		err = fmt.Errorf("%w: %s", err, m.end.Failure)
		m.mu.Unlock()
	}
	if tail := legible(endOf(filepath.Join(m.dir, serialFile), logTail)); tail != "" {
		err = fmt.Errorf("%w; end of the serial console: %s", err, tail)
	}
	err = m.logged(err)
	if gone {
		return err
	}
	return errors.Join(err, m.kill(ctx, r, runEnd{Failure: "the start failed: " + err.Error()}))
}
