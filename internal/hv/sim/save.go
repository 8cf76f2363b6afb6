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

// stateFile is the name of a state in the directory of its save.
const stateFile = "vm.state"

// memoryPrefix begins the names of guest files that a stop loses.
const memoryPrefix = "/dev/shm/"

// guestFiles are files of a simulated guest: path -> content.
type guestFiles map[string]string

// splitMemory separates the files of memory and those of disk.
func (f guestFiles) splitMemory() (memory, disk guestFiles) {
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

func requirementsOf(s hv.Spec) hv.StateRequirements {
	c := s.Requirements()
	c.Driver, c.Version, c.Machine, c.Accelerator, c.CPU, c.Layout = "sim", Version, "sim-1", "sim", "sim", "sim-1"
	return c
}

// Save writes the guest's files: those of its disk as delta of the first disk,
// those of its memory as state.
func (h *Host) Save(ctx context.Context, id string, spec hv.SaveSpec) (hv.SaveResult, error) {
	if err := spec.Validate(); err != nil {
		return hv.SaveResult{}, err
	}
	s, err := h.save(ctx, id, spec)
	if err == nil {
		return s, nil
	}
	names := []string{filepath.Join(spec.Dir, stateFile)}
	for _, d := range s.Disks {
		names = append(names, d.Path)
	}
	for _, name := range names {
		if rerr := os.Remove(name); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return hv.SaveResult{}, fmt.Errorf("sim: save VM %s: %w", id, err)
}

func (h *Host) save(ctx context.Context, id string, spec hv.SaveSpec) (s hv.SaveResult, err error) {
	run, err := h.prepareSave(ctx, id, spec.Suspend)
	if err != nil {
		return s, err
	}
	files := run.Files
	if spec.Suspend {
		if s.State, files, err = h.suspend(ctx, run, spec); err != nil {
			return s, err
		}
		s.Requirements = requirementsOf(run.Spec)
	}
	_, disk := files.splitMemory()
	if err := reportStep(ctx, spec, hv.SavedGuest); err != nil {
		return s, err
	}
	for i := range run.Spec.Disks {
		d := hv.SavedDisk{Path: filepath.Join(spec.Dir, fmt.Sprintf("delta%d.qcow2", i)), Format: "qcow2"}
		changed := guestFiles{}
		if i == 0 {
			changed = disk
		}
		for _, text := range changed {
			d.ChangedBytes += (int64(len(text)) + 4095) &^ 4095
		}
		s.Disks = append(s.Disks, d)
		if i == 0 { // one text, so it contains the base, too
			changed = guestFiles{}
			maps.Copy(changed, run.Base)
			maps.Copy(changed, disk)
		}
		if err := writeDisk(ctx, d.Path, changed); err != nil {
			return s, err
		}
	}
	return s, reportStep(ctx, spec, hv.SavedDisks)
}

// prepareSave returns a copy of the VM to be saved, and shuts it down when it runs and its memory is not
// saved.
func (h *Host) prepareSave(ctx context.Context, id string, suspend bool) (simVM, error) {
	run, err := h.copyOf(id)
	runs := run.VM.Status == hv.Running
	switch {
	case err != nil:
		return run, err
	case suspend && (!runs || h.clock.Now().Before(run.ReadyAt)):
		return run, hv.ErrNotRunning
	case suspend || !runs:
		return run, nil
	}
	if err := h.Stop(ctx, id, hv.StopOrderly); err != nil {
		return run, err
	}
	return h.copyOf(id)
}

// suspend writes the memory of a running VM and returns all its files at that time. The VM has to
// live until that is done.
func (h *Host) suspend(ctx context.Context, run simVM, spec hv.SaveSpec) (path string, files guestFiles, err error) {
	path = filepath.Join(spec.Dir, stateFile)
	for _, step := range []hv.SaveStep{hv.SavePrepared, hv.SavePaused, hv.SaveFrozen, hv.SavedState} {
		if step == hv.SavedState {
			memory, _ := files.splitMemory()
			if err := writeFiles(path, memory); err != nil {
				return path, nil, err
			}
		}
		if err := reportStep(ctx, spec, step); err != nil {
			return path, nil, err
		}
		now, err := h.copyOf(run.VM.ID)
		if err != nil || now.VM.Status != hv.Running || !now.VM.StartedAt.Equal(run.VM.StartedAt) {
			return path, nil, errors.Join(err, errors.New("the VM exited during the save"))
		}
		if step == hv.SavePaused {
			files = now.Files
		}
	}
	return path, files, nil
}

// reportStep reports a step, unless the caller has canceled the save.
func reportStep(ctx context.Context, spec hv.SaveSpec, step hv.SaveStep) error {
	if err := spec.ReportStep(step); err != nil {
		return err
	}
	return ctx.Err()
}

// copyOf returns a copy of a VM's current record.
func (h *Host) copyOf(id string) (simVM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.vms[id]
	if !ok {
		return simVM{}, fmt.Errorf("%w: %s", hv.ErrNotFound, id)
	}
	h.applyPlannedEndLocked(r, h.clock.Now())
	return simVM{VM: r.VM, ReadyAt: r.ReadyAt, Spec: r.Spec, Base: r.Base, Files: maps.Clone(r.Files)}, nil
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

// initialFiles reads the initial files of a VM, which are in use until a start has succeeded.
func (h *Host) initialFiles(s hv.Spec) (disk, memory guestFiles, err error) {
	h.mu.Lock()
	r, known := h.vms[s.ID]
	used := known && r.Used
	h.mu.Unlock()
	if used {
		return nil, nil, nil
	}
	disk, memory = guestFiles{}, guestFiles{}
	if len(s.Disks) > 0 {
		if disk, err = readDisk(s.Disks[0]); err != nil {
			return nil, nil, err
		}
	}
	if s.State == nil {
		return disk, memory, nil
	}
	if err := s.State.Requirements.CheckEqual(requirementsOf(s)); err != nil {
		return nil, nil, err
	}
	if err := readFiles(s.State.Path, memory); err != nil {
		return nil, nil, hv.RefusedError("state: %v", err)
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
