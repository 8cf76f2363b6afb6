package qemu

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

// Files of a VM's directory. Only this process's user can read them; QEMU gets
// those that it needs as open files.
const (
	configFile = "config.json" // config: written before anything is started
	pidFile    = "pid.json"    // process: the last QEMU that was started
	endFile    = "end.json"    // runEnd: how it ended, or that a stop was requested
	lockFile   = "lock"        // locked by QEMU itself while it lives
	logFile    = "qemu.log"    // what QEMU prints
	serialFile = "serial.log"  // end of the serial console, saved when a start fails
	qmpSocket  = "qmp.sock"
	qgaSocket  = "qga.sock"

	// tempPrefix begins the names of directories that are being made or
	// removed. No VM id begins with a dot.
	tempPrefix = ".tmp-"
)

// vmConfig is the spec and the host facts of a VM's last start.
type vmConfig struct {
	Spec        hv.Spec       // with defaults
	Ports       []hv.PortRule // with the host ports of the last start
	VNCPort     int           `json:",omitempty"` // of the last start; 0 = none
	CreatedAt   time.Time
	Machine     string
	CPU         string
	Accelerator string
	Version     string // of QEMU

	// Generations are this VM's overlays, lowest first; the last one is written to. Every disk has
	// one of each. nil means generation 0 alone. Each save of a running guest adds a new one on
	// top, with a number never used before.
	Generations []int
	LastUsed    int // highest generation that was ever made
	Saving      int // generation of a save that has not been settled; 0 = none

	// Layout is that of the last start. It is missing in VMs of agents without layouts.
	Layout string

	// Refreshed reports whether the Spec's state is used up: the guest has run with its own time,
	// random numbers and ports. Until then, what the VM has written is ignored, and a start begins
	// again with the state.
	Refreshed bool
}

// process identifies a QEMU unambiguously: a PID alone may be reused.
type process struct {
	PID        int       `json:"pid"`
	StartTicks uint64    `json:"start_time_ticks"` // as the system counts them
	UUID       string    `json:"uuid"`
	StartedAt  time.Time `json:"started_at"`
}

// runEnd is the end of a run. StopRequested is written before a stop begins, without a time, so
// that an agent killed in between does not take it for a crash.
type runEnd struct {
	StopRequested bool `json:"Asked"` // a stop was requested
	At            time.Time
	Failure       string
	FailureClass  farm.FailureClass `json:",omitempty"` // of Failure; "": not known
}

// generations returns the overlays that the VM's disks have.
func (m *machine) generations() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.config.Generations == nil {
		return []int{0}
	}
	return slices.Clone(m.config.Generations)
}

// overlayPath returns the path of an overlay of a disk.
func (m *machine) overlayPath(disk, generation int) string {
	if generation == 0 {
		return filepath.Join(m.dir, fmt.Sprintf("overlay%d.qcow2", disk))
	}
	return filepath.Join(m.dir, fmt.Sprintf("overlay%d-%d.qcow2", disk, generation))
}

// writeJSON replaces dir/name durably: a crash leaves the old file or the new.
func writeJSON(dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, name+".part"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	return syncDir(dir)
}

func readJSON(dir, name string, v any) error {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
