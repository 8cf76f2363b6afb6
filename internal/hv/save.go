package hv

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// Saver is implemented by drivers that can save VMs; they report CanSave, and CanSuspend if they can
// save running guests. Without that, a save with Suspend is an ErrRefused and changes nothing.
type Saver interface {
	// Save exports the changes of a VM to its disks as one delta per disk, and with Suspend also
	// the guest's state.
	//
	// With Suspend the guest is paused while its state is written and then continues, whether the
	// save succeeded or failed; a VM that does not run is ErrNotRunning. Without Suspend, the guest
	// is shut down first and the VM stays stopped, also when the save fails after that. A guest
	// that does not shut down in time, or ends in another way, fails the save and is not forced. A
	// VM that is already stopped is exported as it is, so that an agent that was killed after the
	// shutdown repeats the save.
	//
	// A save that fails leaves nothing in Dir, and the next one contains everything all the same.
	// When ctx ends, or Delete is called, Save fails soon.
	Save(ctx context.Context, id string, spec SaveSpec) (SaveResult, error)
}

// DiskMover is implemented by drivers whose VMs can run while the base of a disk still comes to this node.
type DiskMover interface {
	// SocketUser returns who connects to the socket of a VM's disk: the file that has its process as {"pid": n} once it
	// runs, and the group of that process; -1: the group of this program.
	SocketUser(id string) (processFile string, group int)
	// UseFile makes a VM read the base of a disk, numbered from 0, from its file, which is complete, and no longer from
	// its socket. The guest continues. It may be repeated, and does nothing where that was done.
	UseFile(ctx context.Context, id string, disk int) error
}

// ErrDiskIncomplete reports that a VM cannot be saved yet: a disk still comes to this node. QEMU stops a guest only
// once its reads have ended, and those may wait for the registry.
var ErrDiskIncomplete = errors.New("a disk of the VM is not on this node as a whole yet")

// Restarter is implemented by drivers that can restart VMs; they report CanRestart.
type Restarter interface {
	// Restart ends a VM by force and starts it from its disks with the spec of its last start,
	// after edit has changed it; nil changes nothing. Only VNC, USB, NeedNetwork and BootTimeout
	// may be changed. Automatically chosen host ports may change.
	Restart(ctx context.Context, id string, edit func(*Spec)) (VM, error)
}

// FailureLogger is implemented by drivers that keep a log of every VM that failed.
type FailureLogger interface {
	// FailureLog returns the log of a VM that ended by a failure; otherwise the newest log of a
	// failed start of it, also after the VM was removed; nil without such a log.
	FailureLog(id string) ([]byte, error)
}

// SaveSpec describes what Save does.
type SaveSpec struct {
	Dir     string // absolute; exists; the files of the save are made in it
	Suspend bool   // save memory and devices, too

	// Step is called after each step with its name; the VM may be paused then. An error fails the
	// save; nil disables the calls. It is not called for resuming the VM.
	Step func(SaveStep) error
}

// SaveStep names a step of Save that has just been completed.
type SaveStep string

// The steps in their order. A save without Suspend has SavedGuest and
// SavedDisks only.
const (
	SavePrepared SaveStep = "prepared" // overlays created and recorded; the guest runs
	SavePaused   SaveStep = "paused"
	SaveFrozen   SaveStep = "frozen" // the disks' current overlays are final
	SavedState   SaveStep = "state"  // the state is in its file; still paused
	SavedGuest   SaveStep = "guest"  // the guest runs again, or is shut down
	SavedDisks   SaveStep = "disks"  // the deltas are in their files
)

// SaveResult is what Save made. The files are synced.
type SaveResult struct {
	Disks        []SavedDisk       // one for each disk of the Spec
	State        string            // path of the state's file; "" without Suspend
	Requirements StateRequirements `json:"Pin"` // of the state; zero without Suspend
	PausedFor    time.Duration     `json:"Pause"`
}

// SavedDisk is the delta of one disk: everything above Spec.Disks[i] with its deltas. It is
// appended to those as a further one of Disk.Deltas.
type SavedDisk struct {
	Path         string
	Format       string
	ChangedBytes int64 `json:"Bytes"`  // in blocks of 4 KiB
	ZeroedBytes  int64 `json:"Zeroed"` // bytes that are zero now; they use no space
}

// State is the suspended guest that a VM resumes from.
type State struct {
	Path         string            // absolute; made by Save
	Requirements StateRequirements `json:"Pin"` // of the state, as returned by Save
}

// StateRequirements is what a state depends on. A state loads only where all of it is equal; the hypervisor
// itself detects only a part of the differences.
type StateRequirements struct {
	Driver      string `json:"driver"`
	Version     string `json:"version"`     // of the hypervisor
	Machine     string `json:"machine"`     // versioned machine type
	Accelerator string `json:"accelerator"` // "kvm", "tcg"
	CPU         string `json:"cpu"`         // CPU model
	HostCPU     string `json:"host_cpu"`    // Host.HostCPU, where the model depends on it
	Layout      string `json:"layout"`      // name of the devices and their slots
	Network     string `json:"network"`     // kind of network behind the guest's card
	VLAN        int    `json:"vlan,omitempty"`
	CPUs        int    `json:"cpus"`
	MemoryMB    int    `json:"memory_mb"`
	Disks       int    `json:"disks"`

	// What the guest has seen of its machine, and continues to see.
	Video        string `json:"video"`
	MAC          string `json:"mac"`
	HardwareUUID string `json:"hardware_uuid"`
	Serial       string `json:"serial"`
}

// CheckEqual returns an ErrRefused with a sentence for the first difference between the VM that would be
// created on this host and what the state needs.
func (c StateRequirements) CheckEqual(here StateRequirements) error {
	for _, row := range []struct {
		what       string
		need, have any
		hint       string
	}{
		{"driver", c.Driver, here.Driver, ""},
		{"hypervisor version", c.Version, here.Version, ""},
		{"accelerator", c.Accelerator, here.Accelerator, ""},
		{"machine type", c.Machine, here.Machine, ""},
		{"CPU model", c.CPU, here.CPU, ""},
		{"host CPU", c.HostCPU, here.HostCPU, ""},
		{"device layout", c.Layout, here.Layout, ""},
		{"kind of network", c.Network, here.Network, ""},
		{"VLAN", c.VLAN, here.VLAN, "; " + savedSettingHint},
		{"number of virtual CPUs", c.CPUs, here.CPUs, "; " + savedSettingHint},
		{"memory in MB", c.MemoryMB, here.MemoryMB, "; " + savedSettingHint},
		{"number of disks", c.Disks, here.Disks, ""},
		{"video controller", c.Video, here.Video, "; " + savedSettingHint},
		{"MAC address", c.MAC, here.MAC, "; " + savedSettingHint},
		{"hardware UUID", c.HardwareUUID, here.HardwareUUID, "; " + savedSettingHint},
		{"serial number", c.Serial, here.Serial, "; " + savedSettingHint},
	} {
		if row.need != row.have {
			return RefusedError("the suspended state needs %s %q, this VM would have %q%s", row.what,
				fmt.Sprint(row.need),
				fmt.Sprint(row.have), row.hint)
		}
	}
	return nil
}

// Validate returns an ErrRefused for a save that no driver could do.
func (s SaveSpec) Validate() error {
	if !filepath.IsAbs(s.Dir) {
		return RefusedError("invalid directory %q of a save: want an absolute path", s.Dir)
	}
	return nil
}

// ReportStep calls Step, if set, with a step.
func (s SaveSpec) ReportStep(step SaveStep) error {
	if s.Step == nil {
		return nil
	}
	if err := s.Step(step); err != nil {
		return fmt.Errorf("save, after step %q: %w", step, err)
	}
	return nil
}
