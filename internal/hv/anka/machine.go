package anka

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// machine is one VM.
type machine struct {
	driver     *Driver
	id         string
	cli        program     // that writes to transcript
	transcript *transcript // of the commands since this process began

	busy sync.Mutex // held by the one call that changes the VM

	mu         sync.Mutex // guards the record's file, which a reader may change too, and the field below
	isStarting bool       // a start of this process is in progress
}

// name returns the name of the VM in anka's library.
func (m *machine) name() string { return "buildyard-" + m.id }

func (m *machine) file(suffix string) string {
	return filepath.Join(m.driver.opts.Dir, vmsDir, m.id+suffix)
}

// readRecord returns the record; ErrNotFound if there is none. The caller holds mu.
func (m *machine) readRecord() (r record, err error) {
	err = readJSON(m.file(recordSuffix), &r)
	if errors.Is(err, fs.ErrNotExist) {
		return r, notFoundError(m.id)
	}
	if err != nil {
		return r, fmt.Errorf("anka: VM %s: %w", m.id, err)
	}
	return r, nil
}

// loadRecord reads the record, and whether a start is in progress.
func (m *machine) loadRecord() (r record, isStarting bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err = m.readRecord()
	return r, m.isStarting, err
}

// updateRecord edits the record.
func (m *machine) updateRecord(edit func(*record)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.readRecord()
	if err != nil {
		return err
	}
	edit(&r)
	return writeJSON(m.file(recordSuffix), r)
}

func (m *machine) setStarting(isStarting bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.isStarting = isStarting
}

// describe returns the VM. It records the end of a run that no caller has ended.
func (m *machine) describe(ctx context.Context) (hv.VM, error) {
	r, isStarting, err := m.loadRecord()
	if err != nil {
		return hv.VM{}, err
	}
	shown, err := m.show(ctx, r)
	if err != nil {
		return hv.VM{}, fmt.Errorf("anka: VM %s: %w", m.id, err)
	}
	if shown.Status != statusRunning && !isStarting {
		if r, isStarting, err = m.recordEnd(r, shown.Status); err != nil {
			return hv.VM{}, err
		}
	}
	return m.vm(r, shown, isStarting), nil
}

// show returns what anka shows of the VM: nothing of one that is missing or half made.
func (m *machine) show(ctx context.Context, r record) (shownVM, error) {
	if !r.IsMade {
		return shownVM{}, nil
	}
	shown, err := m.cli.show(ctx, m.name())
	if hasCode(err, codeNotFound) {
		return shownVM{}, nil
	}
	return shown, err
}

// recordEnd records that the run of a record has ended, unless another one began in the meantime. It
// returns the record as it is now.
func (m *machine) recordEnd(seen record, status string) (r record, isStarting bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, err = m.readRecord(); err != nil {
		return r, m.isStarting, err
	}
	if m.isStarting || r.StartedAt.IsZero() || !r.StoppedAt.IsZero() || !r.StartedAt.Equal(seen.StartedAt) {
		return r, m.isStarting, nil
	}
	r.StoppedAt = recordTime()
	if !r.StopRequested && r.Failure == "" {
		r.Failure = endReason(status)
		m.writeFailureLog(r.Failure, r.StoppedAt)
	}
	return r, false, writeJSON(m.file(recordSuffix), r)
}

// endReason returns why a VM does not run although no caller has stopped it.
func endReason(status string) string {
	switch status {
	case statusFailed:
		return "the VM's process has ended: anka shows the VM as failed"
	case "":
		return "the VM is not in anka's library any more"
	}
	return "the guest has shut down: anka shows the VM as " + printable(status)
}

// vm returns a record in the driver's terms.
func (m *machine) vm(r record, shown shownVM, isStarting bool) hv.VM {
	vm := hv.VM{
		ID: m.id, Name: r.Spec.Name, UUID: r.Spec.UUID, Status: hv.Stopped, MAC: r.Spec.MAC, MacOS: true,
		CPUs: r.Spec.CPUs, MemoryMB: r.Spec.MemoryMB, Ports: slices.Clone(r.Spec.Ports),
		CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, StoppedAt: r.StoppedAt,
		Accelerator: m.driver.host.Accelerator, Version: r.Version, Labels: maps.Clone(r.Spec.Labels),
		Failure: r.Failure,
	}
	if shown.Status != statusRunning && !isStarting {
		return vm
	}
	vm.Status, vm.PID, vm.IP, vm.StoppedAt, vm.Failure = hv.Running, shown.PID, shown.IP, time.Time{}, ""
	if r.Spec.Network == hv.NetworkDisconnected {
		vm.IP = ""
	}
	if r.Ports != nil {
		vm.Ports = slices.Clone(r.Ports)
	}
	return vm
}

// recordTime returns the time for records: without a monotonic part, in UTC.
func recordTime() time.Time { return time.Now().UTC().Round(0) }
