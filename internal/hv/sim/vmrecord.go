package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// LabelBoot controls a single VM against the options of its host: "never" (the guest never gets
// ready), "fail", or a duration such as "2s".
const LabelBoot = "sim.boot"

// forever exceeds every boot timeout.
const forever = 1000 * time.Hour

// simVM is one VM with the random plan that was drawn at its start. With a Dir it is also the
// content of its file.
type simVM struct {
	VM        hv.VM
	ReadyAt   time.Time
	CrashAt   time.Time // zero = never
	CrashText string
	Used      bool // a start has succeeded: the layers and the state are used up
	Runs      int  // starts so far; part of the random draw
	Commands  int  // commands so far
	Spec      hv.Spec
	Base      guestFiles `json:",omitempty"` // of the layers it started with
	Files     guestFiles `json:",omitempty"` // written since; memory and disk

	ended chan struct{} // closed when this run ends; nil after a load
}

// runPlan is the random plan for one run of a VM.
type runPlan struct {
	bootDelay  time.Duration
	fails      bool          // ends at crash instead of getting ready
	crashAfter time.Duration // after the start; 0 = never
	crashText  string
}

func (h *Host) planFor(spec hv.Spec) (runPlan, error) {
	h.mu.Lock()
	runs := 0
	if r, ok := h.vms[spec.ID]; ok {
		runs = r.Runs
	}
	h.mu.Unlock()
	c := h.rng(spec.ID, fmt.Sprint("start", runs))
	p := runPlan{bootDelay: c.durationIn(h.opts.Boot)}
	var crashes bool
	p.fails, crashes = c.Float64() < h.opts.BootFailureRate, c.Float64() < h.opts.CrashRate
	switch how := spec.Labels[LabelBoot]; how {
	case "":
	case "never":
		p.bootDelay, p.fails = forever, false
	case "fail":
		p.fails = true
	default:
		d, err := time.ParseDuration(how)
		if err != nil || d < 0 {
			return p, hv.RefusedError("label %s=%q: never, fail or a duration", LabelBoot, how)
		}
		p.bootDelay, p.fails = d, false
	}
	switch {
	case p.fails: // half way through its boot
		p.crashAfter, p.crashText = max(p.bootDelay/2, 1), "the simulated boot failed"
	case crashes:
		p.crashAfter, p.crashText = p.bootDelay+max(c.durationIn(h.opts.CrashAfter), 1), "the simulated VM crashed"
	}
	return p, nil
}

func (r *simVM) applyPlan(now time.Time, p runPlan) {
	r.ReadyAt, r.CrashAt, r.CrashText = now.Add(p.bootDelay), time.Time{}, p.crashText
	if p.fails {
		r.ReadyAt = now.Add(forever)
	}
	if p.crashAfter > 0 {
		r.CrashAt = now.Add(p.crashAfter)
	}
	r.Runs++
	r.ended = make(chan struct{})
}

func (r *simVM) markEnded() {
	if r.ended != nil {
		close(r.ended)
		r.ended = nil
	}
}

// copyVM returns a copy that shares nothing with the record.
func (r *simVM) copyVM() hv.VM {
	vm := r.VM
	vm.Ports, vm.Labels = slices.Clone(vm.Ports), maps.Clone(vm.Labels)
	return vm
}

const recordSuffix = ".vm.json"

func (h *Host) loadRecords() error {
	if err := os.MkdirAll(h.opts.Dir, 0o700); err != nil {
		return err
	}
	files, err := os.ReadDir(h.opts.Dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), recordSuffix)
		if !ok || !hv.ValidID(id) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(h.opts.Dir, f.Name()))
		if err != nil {
			return err
		}
		r := new(simVM)
		if err := json.Unmarshal(b, r); err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		if r.VM.ID != id {
			return fmt.Errorf("%s is the record of another VM %q", f.Name(), r.VM.ID)
		}
		if r.VM.Status == hv.Running {
			r.ended = make(chan struct{})
		}
		h.vms[id] = r
	}
	return nil
}

// saveLocked writes a temporary file and renames it: a killed process leaves the old file or the
// new one.
func (h *Host) saveLocked(r *simVM) error {
	if h.opts.Dir == "" {
		return nil
	}
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("sim: %w", err)
	}
	name := filepath.Join(h.opts.Dir, r.VM.ID+recordSuffix)
	if err := os.WriteFile(name+".part", b, 0o600); err != nil {
		return fmt.Errorf("sim: %w", err)
	}
	return os.Rename(name+".part", name)
}

func (h *Host) removeFile(id string) error {
	if h.opts.Dir == "" {
		return nil
	}
	err := os.Remove(filepath.Join(h.opts.Dir, id+recordSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
