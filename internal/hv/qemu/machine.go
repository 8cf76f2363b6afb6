package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/failurelog"
)

const (
	maxLogBytes  = 1 << 20 // qemu.log is cut when it is longer
	logTailBytes = 2 << 10 // how much of a log becomes part of an error
	killTimeout  = 10 * time.Second
	lockTimeout  = 5 * time.Second
)

// machine is one VM, running or not.
type machine struct {
	driver *Driver
	id     string
	dir    string

	saveLock cancelableLock // held while a save is running or being settled, and while QEMU is started

	startingUSB []hv.USBDevice // of a start in progress; the driver's mu guards it
	starts      atomic.Int32   // calls of Start that run

	deleteCtx       context.Context // ends with Delete, and with it a save
	cancelForDelete context.CancelFunc

	mu      sync.Mutex // guards the fields below
	config  vmConfig
	proc    process // the last one; zero before the first start
	lastEnd runEnd  // of the last run
	run     *run    // nil when no QEMU runs
}

func (d *Driver) newMachine(id string) *machine {
	m := &machine{driver: d, id: id, dir: filepath.Join(d.opts.Dir, id), saveLock: newCancelableLock()}
	m.deleteCtx, m.cancelForDelete = context.WithCancel(context.Background())
	return m
}

// currentRun returns the QEMU that runs, or nil.
func (m *machine) currentRun() *run {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.run
}

// spec returns the spec of the VM's last start, with defaults. The caller must not write to what it
// refers to.
func (m *machine) spec() hv.Spec {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.config.Spec
}

// describeVM returns the VM as callers see it.
func (m *machine) describeVM() hv.VM {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.config.Spec
	vm := hv.VM{
		ID: m.id, Name: s.Name, UUID: s.UUID, MAC: s.MAC, Status: hv.Stopped,
		Ports: slices.Clone(m.config.Ports), CPUs: s.CPUs, MemoryMB: s.MemoryMB,
		CreatedAt: m.config.CreatedAt, StartedAt: m.proc.StartedAt, StoppedAt: m.lastEnd.At,
		Accelerator: m.config.Accelerator, Version: m.config.Version,
		Labels: maps.Clone(s.Labels), Failure: m.lastEnd.Failure, FailureClass: m.lastEnd.FailureClass,
	}
	if m.run != nil {
		vm.Status, vm.PID, vm.IP, vm.VNCPort = hv.Running, m.proc.PID, m.run.address(), m.config.VNCPort
		vm.StoppedAt, vm.Failure, vm.FailureClass = time.Time{}, "", ""
	}
	return vm
}

// adoptVM loads one VM's directory and connects to its QEMU, if it lives.
func (d *Driver) adoptVM(ctx context.Context, id string) error {
	m := d.newMachine(id)
	if err := readJSON(m.dir, configFile, &m.config); err != nil {
		return err
	}
	for name, v := range map[string]any{pidFile: &m.proc, endFile: &m.lastEnd} {
		if err := readJSON(m.dir, name, v); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	p, lives, err := m.findQEMU(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.machines[id] = m
	d.mu.Unlock()
	if !lives {
		return m.recordMissedEnd()
	}
	d.log.Info("running VM found after a restart of the agent", "vm", id, "pid", p.PID)
	if p.StartedAt.IsZero() { // the agent was killed before it could write this
		p.StartedAt = time.Now()
		if err := writeJSON(m.dir, pidFile, p); err != nil {
			return err
		}
	}
	m.proc = p
	d.reservePorts(id, m.config.Ports, m.config.VNCPort)
	m.attach(nil, nil)
	return nil
}

// findQEMU returns the QEMU that has the VM's lock. Between fork and exec a new QEMU cannot be
// recognized yet; the lock shows that it exists.
func (m *machine) findQEMU(ctx context.Context) (process, bool, error) {
	for range 250 {
		f, err := takeLock(m.dir)
		if err == nil {
			return process{}, false, f.Close()
		}
		if !errors.Is(err, errLocked) {
			return process{}, false, err
		}
		if m.proc.PID != 0 && m.proc.isAlive() {
			return m.proc, true, nil
		}
		if p, ok := findProcess(m.config.Spec.UUID); ok { // started by an agent that could not record it
			return p, true, nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return process{}, false, err
		}
	}
	return process{}, false,
		errors.New(
			"a process has locked the VM directory, but no QEMU process with the machine UUID of the VM was found")
}

// recordMissedEnd records the end of a run that ended while no agent was running.
func (m *machine) recordMissedEnd() error {
	if !m.lastEnd.At.IsZero() {
		return nil
	}
	e := runEnd{StopRequested: m.lastEnd.StopRequested, At: time.Now()}
	switch {
	case e.StopRequested:
	case m.proc.PID == 0:
		e.Failure = "the start was interrupted"
	default:
		e.Failure = m.withLogTail("QEMU ended while no agent was watching")
	}
	m.lastEnd = e
	return writeJSON(m.dir, endFile, e)
}

// recordEnd records the end of a run. An end that was requested has no failure.
func (m *machine) recordEnd(r *run, cause endCause) {
	m.mu.Lock()
	e := runEnd{
		StopRequested: m.lastEnd.StopRequested, At: time.Now(), Failure: cause.text, FailureClass: cause.class,
	}
	if e.StopRequested {
		e.Failure, e.FailureClass = m.lastEnd.Failure, m.lastEnd.FailureClass
	}
	m.lastEnd, m.run = e, nil
	m.mu.Unlock()
	m.driver.releasePorts(m.id)
	if m.spec().VLAN != 0 {
		m.driver.pruneVLANs()
	}
	if err := writeJSON(m.dir, endFile, e); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.driver.log.Warn("recording the exit of a VM failed", "vm", m.id, "error", err)
	}
	m.driver.log.Info("VM exited", "vm", m.id, "pid", r.proc.PID, "asked", e.StopRequested, "failure", e.Failure)
}

// recordStopIntent durably records that a run is about to be ended on purpose, and why. The end
// does not wait for free space on the disk, which may be full because of this very VM. An agent
// that is started before the intent is recorded takes the end for a crash.
func (m *machine) recordStopIntent(e runEnd) {
	if err := m.writeStopIntent(e); err != nil {
		m.driver.log.Warn("recording the intent to stop a VM failed", "vm", m.id, "error", err)
	}
}

// writeStopIntent is recordStopIntent for callers that need not end the run: an error means that the
// record is not durable.
func (m *machine) writeStopIntent(e runEnd) error {
	e.StopRequested, e.At = true, time.Time{}
	m.mu.Lock()
	m.lastEnd = e
	m.mu.Unlock()
	return writeJSON(m.dir, endFile, e)
}

// clearStopIntent removes the record: the run continues, unless it has just ended.
func (m *machine) clearStopIntent(r *run) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run != r {
		return nil
	}
	m.lastEnd = runEnd{}
	return removeFile(filepath.Join(m.dir, endFile))
}

// killRun ends a run immediately and waits until it is gone. e is the reason that List reports.
func (m *machine) killRun(ctx context.Context, r *run, e runEnd) error {
	m.recordStopIntent(e)
	if err := r.proc.kill(); err != nil {
		return fmt.Errorf("qemu: stop VM %s: %w", m.id, err)
	}
	return m.awaitEnd(ctx, r, killTimeout)
}

// awaitEnd waits for the end of a run, at most d.
func (m *machine) awaitEnd(ctx context.Context, r *run, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-r.exited:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return fmt.Errorf("qemu: VM %s: process %d does not exit", m.id, r.proc.PID)
	}
}

// withLogTail adds the end of QEMU's log to a reason.
func (m *machine) withLogTail(reason string) string {
	if text := sanitizedTail(failurelog.LastBytes(filepath.Join(m.dir, logFile), logTailBytes)); text != "" {
		return reason + ": " + text
	}
	return reason
}

// trimLog truncates a log that a guest has made QEMU fill. QEMU appends, so the next line is
// written at the beginning.
func (m *machine) trimLog() {
	name := filepath.Join(m.dir, logFile)
	if info, err := os.Stat(name); err == nil && info.Size() > maxLogBytes {
		_ = os.Truncate(name, 0)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
