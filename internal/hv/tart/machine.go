package tart

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/internal/hv/guestssh"
)

// machine is one VM.
type machine struct {
	driver *Driver
	id     string
	dir    string

	useSSH atomic.Bool // of the last start; see record.BySSH

	busy sync.Mutex // held by the one call that changes the VM, and while its forwarder is restarted
	mu   sync.Mutex // guards the record's file, since a reader may note the end of a run, and the field below

	sshClient *guestssh.Client // nil until it is used
}

// isRunning reports whether the VM of a record runs, and by which process. Between the start of tart
// and its lock it counts as running.
func (m *machine) isRunning(r record) (pid int, running bool, err error) {
	pid, err = cliproc.LockOwner(filepath.Join(m.dir, configFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("tart: VM %s: %w", m.id, err)
	}
	if pid != 0 {
		return pid, true, nil
	}
	if r.Process.IsAlive() {
		return r.Process.PID, true, nil
	}
	return 0, false, nil
}

// describe returns the VM. It records the end of a run that ended without a request.
func (m *machine) describe() (hv.VM, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.readRecord()
	if errors.Is(err, errDamagedRecord) {
		return m.describeDamaged(err)
	}
	if err != nil {
		return hv.VM{}, err
	}
	pid, running, err := m.isRunning(r)
	if err != nil {
		return hv.VM{}, err
	}
	if !running && !r.StartedAt.IsZero() && r.StoppedAt.IsZero() && !m.isStarting(r) {
		if err := m.noteEnd(&r); err != nil {
			return hv.VM{}, err
		}
	}
	return m.vm(r, pid, running || m.isStarting(r)), nil
}

// describeDamaged returns a VM without its record: its ID, and by its lock whether it runs.
func (m *machine) describeDamaged(reason error) (hv.VM, error) {
	pid, running, err := m.isRunning(record{})
	vm := hv.VM{ID: m.id, Status: hv.Stopped, Failure: reason.Error()}
	if running {
		vm.Status, vm.PID, vm.Failure = hv.Running, pid, ""
	}
	return vm, err
}

// startGap is the time in which a killed agent may have left a start without a process. A start that
// has written its record and no process begins tart within it.
const startGap = 5 * time.Second

// isStarting reports whether the start of a record may have a process that is not recorded yet.
func (m *machine) isStarting(r record) bool {
	return r.StoppedAt.IsZero() && r.Process == cliproc.Process{} && time.Since(r.StartedAt) < startGap
}

// noteEnd records that a run has ended.
func (m *machine) noteEnd(r *record) error {
	r.StoppedAt = startedNow()
	if !r.StopRequested && r.Failure == "" {
		r.Failure = readRunLog(filepath.Join(m.dir, runLogFile)).failure()
	}
	return m.writeRecord(*r)
}

// change edits the record.
func (m *machine) change(edit func(*record)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.readRecord()
	if err != nil {
		return err
	}
	edit(&r)
	return m.writeRecord(r)
}

// vm returns a record in the driver's terms.
func (m *machine) vm(r record, pid int, running bool) hv.VM {
	vm := hv.VM{
		ID: m.id, Name: r.Spec.Name, UUID: r.Spec.UUID, Status: hv.Stopped, MAC: r.Spec.MAC,
		CPUs: r.Spec.CPUs, MemoryMB: r.Spec.MemoryMB, Ports: slices.Clone(r.Spec.Ports),
		CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, StoppedAt: r.StoppedAt,
		Accelerator: m.driver.host.Accelerator, Version: r.Version, Labels: maps.Clone(r.Spec.Labels),
		Failure: r.Failure,
	}
	if !running {
		return vm
	}
	vm.Status, vm.PID, vm.StoppedAt = hv.Running, pid, time.Time{}
	vm.Ports, vm.VNCPort = m.forwardedPorts(r)
	if address := m.driver.leasedAddress(r.Spec.MAC); address.IsValid() {
		vm.IP = address.String()
	}
	return vm
}

// newSuffix returns a random end of a file name.
func newSuffix() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
