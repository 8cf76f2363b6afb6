package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/internal/hv"
)

var (
	_ hv.Saver     = (*Host)(nil)
	_ hv.Restarter = (*Host)(nil)
)

// memoryPrefix begins the names of guest files that a stop loses.
const memoryPrefix = "/dev/shm/"

// guestFiles are files of a simulated guest: path -> content.
type guestFiles map[string]string

// split answers the files of memory and those of disk.
func (f guestFiles) split() (memory, disk guestFiles) {
	memory, disk = guestFiles{}, guestFiles{}
	for name, text := range f {
		if strings.HasPrefix(name, memoryPrefix) {
			memory[name] = text
		} else {
			disk[name] = text
		}
	}
	return memory, disk
}

func compat(s hv.Spec) hv.Compat {
	c := s.Pin()
	c.Driver, c.Version, c.Machine, c.Accelerator, c.CPU, c.Layout = "sim", Version, "sim-1", "sim", "sim", "sim-1"
	return c
}

// Save writes the guest's files: those of its disk as delta of the first disk,
// those of its memory as state. The files are JSON, whatever their format says.
func (h *Host) Save(ctx context.Context, id string, spec hv.SaveSpec) (hv.Saved, error) {
	if err := spec.Validate(); err != nil {
		return hv.Saved{}, err
	}
	s, err := h.save(ctx, id, spec)
	if err == nil {
		return s, nil
	}
	names := []string{filepath.Join(spec.Dir, "vm.state")}
	for _, d := range s.Disks {
		names = append(names, d.Path)
	}
	for _, name := range names {
		if rerr := os.Remove(name); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return hv.Saved{}, fmt.Errorf("sim: save VM %s: %w", id, err)
}

func (h *Host) save(ctx context.Context, id string, spec hv.SaveSpec) (s hv.Saved, err error) {
	began := h.clock.Now()
	r, err := h.frozen(id)
	if err != nil {
		return s, err
	}
	memory, disk := r.Files.split()
	if spec.Suspend {
		for _, step := range []hv.SaveStep{hv.SavePrepared, hv.SavePaused, hv.SaveFrozen} {
			if err := spec.Did(step); err != nil {
				return s, err
			}
		}
		s.State, s.Pin = filepath.Join(spec.Dir, "vm.state"), compat(r.Spec)
		if err := writeFiles(s.State, memory); err != nil {
			return s, err
		}
		if err := spec.Did(hv.SavedState); err != nil {
			return s, err
		}
		s.Pause = h.clock.Now().Sub(began)
	} else if err := h.Stop(ctx, id, hv.StopOrderly); err != nil {
		return s, err
	}
	if err := spec.Did(hv.SavedGuest); err != nil {
		return s, err
	}
	for i := range r.Spec.Disks {
		d := hv.SavedDisk{Path: filepath.Join(spec.Dir, fmt.Sprintf("delta%d.qcow2", i)), Format: "qcow2"}
		changed := guestFiles{}
		if i == 0 {
			changed = disk
		}
		s.Disks = append(s.Disks, d)
		for _, text := range changed {
			s.Disks[i].Bytes += (int64(len(text)) + 4095) &^ 4095
		}
		if err := writeFiles(d.Path, changed); err != nil {
			return s, err
		}
	}
	return s, spec.Did(hv.SavedDisks)
}

// frozen is a copy of a running VM's record as it is now.
func (h *Host) frozen(id string) (record, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.vms[id]
	if !ok {
		return record{}, fmt.Errorf("%w: %s", hv.ErrNotFound, id)
	}
	now := h.clock.Now()
	h.ageLocked(r, now)
	if r.VM.Status != hv.Running || now.Before(r.ReadyAt) {
		return record{}, hv.ErrNotRunning
	}
	return record{Spec: r.Spec, Files: maps.Clone(r.Files)}, nil
}

// Restart ends a VM by force and starts it again.
func (h *Host) Restart(ctx context.Context, id string, edit func(*hv.Spec)) (hv.VM, error) {
	h.mu.Lock()
	r, ok := h.vms[id]
	if !ok {
		h.mu.Unlock()
		return hv.VM{}, fmt.Errorf("sim: %w: %s", hv.ErrNotFound, id)
	}
	before := r.Spec.Clone()
	h.mu.Unlock()
	after := before.Clone()
	if edit != nil {
		edit(&after)
	}
	if err := hv.CheckRestart(before, after); err != nil {
		return hv.VM{}, err
	}
	if err := h.Stop(ctx, id, hv.StopForce); err != nil {
		return hv.VM{}, err
	}
	return h.Start(ctx, after)
}

// layers reads what a new VM begins with. A VM that has run needs it no more.
func (h *Host) layers(s hv.Spec) (disk, memory guestFiles, err error) {
	h.mu.Lock()
	_, known := h.vms[s.ID]
	h.mu.Unlock()
	if known {
		return nil, nil, nil
	}
	disk, memory = guestFiles{}, guestFiles{}
	for _, d := range s.Disks {
		for _, path := range d.Deltas {
			if err := readFiles(path, disk); err != nil {
				return nil, nil, hv.Refuse("layer %s: %v", path, err)
			}
		}
	}
	if s.State == nil {
		return disk, memory, nil
	}
	if err := s.State.Pin.Check(compat(s)); err != nil {
		return nil, nil, err
	}
	if err := readFiles(s.State.Path, memory); err != nil {
		return nil, nil, hv.Refuse("state: %v", err)
	}
	return disk, memory, nil
}

func writeFiles(path string, f guestFiles) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

func readFiles(path string, into guestFiles) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, &into)
}
