// Package sim is a hypervisor driver without a hypervisor: its VMs are records
// in memory, with delays and failures that can be set. It carries load tests,
// `buildnode sim` and the tests of the agent; a real node never uses it.
//
// Invariant: a Host answers exactly as a real driver would for the same calls
// (hvtest runs both), only faster and, with the same seed, the same each time.
package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

// Version is the hypervisor version that simulated VMs report.
const Version = "1.0"

// DefaultArch is the architecture of a simulated host for which none is set.
const DefaultArch = "amd64"

// DurationRange is a duration drawn evenly from Min to Max. The zero value means no wait.
type DurationRange struct{ Min, Max time.Duration }

// Options set how a Host behaves. The zero value is a host whose VMs start immediately, never fail,
// and exist in memory only.
type Options struct {
	Boot, Stop, Exec DurationRange // how long a start, an orderly stop and the connection to the guest take
	Delete           DurationRange // how long the removal of a VM takes

	BootFailureRate float64       // share of starts that fail, 0-1
	ExecFailureRate float64       // share of commands whose result is lost, 0-1
	CrashRate       float64       // share of VMs that end without a request
	CrashAfter      DurationRange // how long after their start they do

	// Dir stores every VM in a file, so that VMs outlive a killed process. Empty: they outlive an
	// agent only as long as the Host itself.
	Dir string

	Arch string // of the host, amd64 or arm64; "" = DefaultArch

	// License and Expires describe the hypervisor's license: see hv.Host.
	License, Expires string
	VLANs            []int // that guests can be in, in ascending order

	Seed  uint64
	Clock Clock // nil = the real one
}

// Clock is the time of a Host.
type Clock interface {
	Now() time.Time
	// Sleep waits d, or returns ctx's error when ctx ends first.
	Sleep(ctx context.Context, d time.Duration) error
}

// Host is a simulated machine and the driver for it. Passing the same Host to a new agent simulates
// an agent restart.
type Host struct {
	opts  Options
	clock Clock

	mu  sync.Mutex        // guards the fields below
	vms map[string]*simVM // VM id -> its record
}

var _ hv.Driver = (*Host)(nil)

// New returns a Host and, with a Dir, loads the existing VMs.
func New(opt Options) (*Host, error) {
	h := &Host{opts: opt, clock: opt.Clock, vms: map[string]*simVM{}}
	if h.clock == nil {
		h.clock = realClock{}
	}
	if opt.Dir == "" {
		return h, nil
	}
	if err := h.loadRecords(); err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	return h, nil
}

// Describe returns the constants of the simulation.
func (h *Host) Describe(context.Context) (hv.Host, error) {
	d := hv.Host{Driver: "sim", Version: Version, Accelerator: "sim", Machine: "sim-1", CPU: "sim"}
	d.Arch = cmp.Or(h.opts.Arch, DefaultArch)
	d.LicenseKind, d.LicenseExpires = h.opts.License, h.opts.Expires
	d.Capabilities = append(hv.PCCapabilities(), hv.CanRestart, hv.CanSave, hv.CanSuspend, hv.CanResize, hv.CanVNC,
		hv.CanConsole, hv.CanUSB, hv.CanBridge)
	if h.opts.Dir != "" {
		d.Capabilities = append(d.Capabilities, hv.CanPersist)
	}
	slices.Sort(d.Capabilities)
	d.VLANs = slices.Clone(h.opts.VLANs)
	return d, nil
}

// Start boots a VM: it exists and runs from the first moment, and is ready
// after its boot delay.
func (h *Host) Start(ctx context.Context, spec hv.Spec) (hv.VM, error) {
	spec, err := h.acceptSpec(spec)
	if err != nil {
		return hv.VM{}, err
	}
	if spec.VLAN != 0 && !slices.Contains(h.opts.VLANs, spec.VLAN) {
		return hv.VM{}, hv.RefusedError("VLAN %d: it is not configured on this host", spec.VLAN)
	}
	plan, err := h.planFor(spec)
	if err != nil {
		return hv.VM{}, err
	}
	disk, memory, err := h.initialFiles(spec)
	if err != nil {
		return hv.VM{}, err
	}
	if memory != nil && spec.State != nil {
		plan.bootDelay /= 10 // no guest boots: it resumes
	}
	run, err := h.powerOn(spec, plan, disk, memory)
	if err != nil {
		return hv.VM{}, err
	}
	return h.awaitReady(ctx, spec, run)
}

// acceptSpec fills in the defaults of a spec and refuses what is not simulated.
func (h *Host) acceptSpec(s hv.Spec) (hv.Spec, error) {
	err := s.Validate()
	if err == nil {
		s, err = s.WithDefaults()
	}
	if err != nil {
		return s, err
	}
	if s.Apple != nil {
		return s, hv.RefusalMacOS.Error("sim")
	}
	pc := s.PCSettings()
	isUEFI := pc.Firmware == hv.FirmwareUEFI && h.opts.Arch == "arm64" // whose guests have nothing else
	if pc.Firmware != "" && pc.Firmware != hv.FirmwareBIOS && !isUEFI {
		return s, hv.RefusedError("firmware %q is not simulated", pc.Firmware)
	}
	for _, d := range pc.USB {
		if kind, ok := d.Emulated(); ok && kind != "tablet" && kind != "storage" {
			return s, hv.RefusedError("USB device %q is not simulated", d.Location)
		}
	}
	return s, nil
}

// powerOn adds the VM to the table as running, or finds it there.
func (h *Host) powerOn(spec hv.Spec, plan runPlan, disk, memory guestFiles) (started time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	r, ok := h.vms[spec.ID]
	if ok {
		h.applyPlannedEndLocked(r, now)
		if r.VM.Status == hv.Running {
			return r.VM.StartedAt, nil
		}
	} else {
		r = &simVM{VM: hv.VM{ID: spec.ID, CreatedAt: now}}
	}
	if !r.Used {
		r.Base, r.Files = disk, guestFiles{}
	}
	_, r.Files = r.Files.splitMemory() // a stop loses the memory
	maps.Copy(r.Files, memory)
	r.Spec = spec.Clone()
	r.VM.Name, r.VM.UUID, r.VM.MAC = spec.Name, spec.UUID, spec.MAC
	r.VM.CPUs, r.VM.MemoryMB = spec.CPUs, spec.MemoryMB
	r.VM.Labels = maps.Clone(spec.Labels)
	r.VM.Status, r.VM.Failure = hv.Running, ""
	r.VM.StartedAt, r.VM.StoppedAt = now, time.Time{}
	r.VM.Accelerator, r.VM.Version = "sim", Version
	r.VM.IP = ""
	r.VM.Ports, r.VM.VNCPort = h.assignPortsLocked(spec), h.assignScreenPortLocked(spec)
	r.applyPlan(now, plan)
	h.vms[spec.ID] = r
	return now, h.saveLocked(r)
}

// awaitReady waits until the run that began at started is ready, has failed, or was ended.
func (h *Host) awaitReady(ctx context.Context, spec hv.Spec, started time.Time) (hv.VM, error) {
	timeout := spec.BootTimeout
	if timeout == 0 {
		timeout = hv.DefaultBootTimeout
	}
	for {
		vm, next, gone, err := h.checkReady(spec.ID, started, timeout)
		if err != nil || next == 0 {
			return vm, err
		}
		wake, cancel := withRunEnd(ctx, gone)
		err = h.clock.Sleep(wake, next)
		cancel()
		if err != nil && ctx.Err() != nil {
			return hv.VM{}, errors.Join(ctx.Err(), h.endRun(spec.ID, "the start was canceled"))
		}
	}
}

// checkReady returns a VM that is ready, an error for one that will never be, or how long to wait before
// the next look.
func (h *Host) checkReady(
	id string, started time.Time, timeout time.Duration,
) (hv.VM, time.Duration, <-chan struct{}, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.vms[id]
	if !ok || !r.VM.StartedAt.Equal(started) {
		return hv.VM{}, 0, nil, fmt.Errorf("sim: VM %s was removed during its start", id)
	}
	now, deadline := h.clock.Now(), started.Add(timeout)
	h.applyPlannedEndLocked(r, now)
	switch {
	case r.VM.Status != hv.Running:
		err := fmt.Errorf("sim: VM %s failed: %s", id, r.VM.Failure)
		return hv.VM{}, 0, nil, farm.MarkFailure(err, farm.FailureGuestStopped, farm.StepBoot)
	case !now.Before(r.ReadyAt):
		if r.Used {
			return r.copyVM(), 0, nil, nil
		}
		r.Used = true
		return r.copyVM(), 0, nil, h.saveLocked(r)
	case !now.Before(deadline):
		err := fmt.Errorf("sim: VM %s: %w (%s)", id, hv.ErrBootTimeout, timeout)
		return hv.VM{}, 0, nil, errors.Join(err, h.endLocked(r, now, err.Error()))
	}
	next := min(r.ReadyAt.Sub(now), deadline.Sub(now))
	if !r.CrashAt.IsZero() {
		next = min(next, r.CrashAt.Sub(now))
	}
	return hv.VM{}, next, r.ended, nil
}

// Stop ends a VM after the stop delay, or immediately when forced.
func (h *Host) Stop(ctx context.Context, id string, how hv.StopMode) error {
	vm, err := h.Get(ctx, id)
	if err != nil || vm.Status != hv.Running {
		return err
	}
	if how == hv.StopOrderly {
		if err := h.clock.Sleep(ctx, h.rng(id, "stop").durationIn(h.opts.Stop)); err != nil {
			return err
		}
	}
	return h.endRun(id, "")
}

// Delete removes a VM after the delete delay. It continues running until then.
func (h *Host) Delete(ctx context.Context, id string) error {
	if takes := h.opts.Delete; takes != (DurationRange{}) && h.exists(id) {
		if err := h.clock.Sleep(ctx, h.rng(id, "delete").durationIn(takes)); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.vms[id]
	if !ok {
		return nil
	}
	r.markEnded() // including the commands in its guest
	delete(h.vms, id)
	return h.removeFile(id)
}

func (h *Host) exists(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.vms[id]
	return ok
}

// List returns all VMs ordered by ID.
func (h *Host) List(context.Context) ([]hv.VM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	out := make([]hv.VM, 0, len(h.vms))
	for _, r := range h.vms {
		h.applyPlannedEndLocked(r, now)
		out = append(out, r.copyVM())
	}
	slices.SortFunc(out, func(a, b hv.VM) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// Get returns one VM.
func (h *Host) Get(_ context.Context, id string) (hv.VM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.vms[id]
	if !ok {
		return hv.VM{}, fmt.Errorf("sim: %w: %s", hv.ErrNotFound, id)
	}
	h.applyPlannedEndLocked(r, h.clock.Now())
	return r.copyVM(), nil
}

// Kill ends a VM as a crash of its hypervisor would.
func (h *Host) Kill(id string) error { return h.endRun(id, "the simulated hypervisor was killed") }

func (h *Host) endRun(id, failure string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.vms[id]
	if !ok || r.VM.Status != hv.Running {
		return nil
	}
	return h.endLocked(r, h.clock.Now(), failure)
}

// endLocked stops a running VM; commands in its guest end with it.
func (h *Host) endLocked(r *simVM, at time.Time, failure string) error {
	if r.VM.Status != hv.Running {
		return nil
	}
	r.VM.Status, r.VM.StoppedAt, r.VM.Failure = hv.Stopped, at, failure
	r.VM.IP, r.VM.VNCPort = "", 0
	r.markEnded()
	return h.saveLocked(r)
}

// applyPlannedEndLocked ends a VM whose planned end is due.
func (h *Host) applyPlannedEndLocked(r *simVM, now time.Time) {
	if r.VM.Status == hv.Running && !r.CrashAt.IsZero() && !now.Before(r.CrashAt) {
		// The next change of the VM writes the file again; a record that is loaded before then ends
		// in the same way.
		_ = h.endLocked(r, r.CrashAt, r.CrashText)
	}
	if r.VM.Status == hv.Running && !now.Before(r.ReadyAt) && r.Spec.Network != hv.NetworkDisconnected {
		r.VM.IP = "10.0.2.15"
	}
}

// assignPortsLocked assigns the next host port that no running VM of this host has to each rule without
// one. Nothing listens on them.
func (h *Host) assignPortsLocked(spec hv.Spec) []hv.PortRule {
	out := slices.Clone(spec.Ports)
	if len(out) == 0 {
		return out
	}
	taken := map[int]bool{}
	for _, r := range h.vms {
		if r.VM.Status != hv.Running {
			continue
		}
		for _, p := range r.VM.Ports {
			taken[p.HostPort] = true
		}
	}
	next := 10000
	for i := range out {
		if out[i].Protocol == "" {
			out[i].Protocol = "tcp"
		}
		if out[i].HostPort != 0 {
			continue
		}
		for taken[next] {
			next++
		}
		out[i].HostPort = next
		taken[next] = true
	}
	return out
}

// assignScreenPortLocked returns the port of a VM's screen, 0 for none. Nothing listens on it.
func (h *Host) assignScreenPortLocked(spec hv.Spec) int {
	if spec.VNC == nil || spec.VNC.Port != 0 {
		return vncPort(spec.VNC)
	}
	taken := map[int]bool{}
	for _, r := range h.vms {
		taken[r.VM.VNCPort] = r.VM.Status == hv.Running
	}
	port := 5900
	for taken[port] {
		port++
	}
	return port
}

func vncPort(v *hv.VNC) int {
	if v == nil {
		return 0
	}
	return v.Port
}

// seededRand is a random source that depends on the seed, the VM and what is drawn, but not on the
// order of calls from goroutines.
type seededRand struct{ *rand.Rand }

func (h *Host) rng(id, what string) seededRand {
	f := fnv.New64a()
	fmt.Fprintf(f, "%s\x00%s", id, what)
	return seededRand{rand.New(rand.NewPCG(h.opts.Seed, f.Sum64()))} //nolint:gosec // simulated luck, not a secret
}

func (c seededRand) durationIn(r DurationRange) time.Duration {
	if r.Max <= r.Min {
		return r.Min
	}
	return r.Min + time.Duration(c.Int64N(int64(r.Max-r.Min)))
}

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

func (realClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
