// Package hvtest is the conformance suite of hypervisor drivers. Every driver runs it, including
// the simulated one; its requirements hold for all of them.
//
// It is test code that is imported by tests only.
//
// Invariant: a check never asks which driver it tests, only for the driver's abilities.
package hvtest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// Subject is a driver with what the suite needs to test it.
type Subject struct {
	Driver hv.Driver
	// Spec returns a spec that starts; no two have the same ID or UUID.
	Spec func() hv.Spec
	// Warm returns a spec that resumes from a saved guest, with the settings of Spec: a start
	// without a boot. nil where starts are cheap.
	Warm func() hv.Spec
	// NeverReady returns a spec whose guest never gets ready, with a short boot timeout.
	NeverReady func() hv.Spec
	// Kill ends a VM's hypervisor from outside, as kill -9 would.
	Kill func(t *testing.T, vm hv.VM)
	// Reopen closes the driver and returns a new one over the same VMs, as after a restart of the agent.
	Reopen func(t *testing.T) hv.Driver
	// Other is a driver over another directory, as on a second node. Needed
	// with hv.CanSave; what is left in it ends with the test.
	Other func(t *testing.T) hv.Driver
	// USB returns the kinds of the emulated USB devices that a VM of the driver has plugged in. nil
	// if the driver does not show that.
	USB func(t *testing.T, d hv.Driver, id string) []string
	// Steps selects the steps of a save at which it is made to fail: some of them where a save
	// takes seconds. nil: all.
	Steps func(steps []hv.SaveStep) []hv.SaveStep
	// MaxVMs is how many VMs of the driver may run at a time, with RunSerially. 0: no limit.
	MaxVMs int
	// Mask hides abilities that the driver announces and that a fake of its hypervisor cannot show.
	Mask []hv.Capability
	// Paths maps paths of a Linux guest that scripts use to those of the driver's guests: /root on the
	// disk, /dev/shm in memory (needed with hv.CanSuspend), and /proc. nil: they are Linux guests.
	Paths map[string]string
	// Short leaves out the checks named in long, and the part that boots several guests.
	Short bool
	// More are checks of this driver alone.
	More []Check
}

// long lists the checks that a short run leaves out. Each boots or resumes separate guests although
// it differs little from a check of a short run.
var long = []string{
	"start after stop", "forced stop", "restart", "restart given up", "ended in a save", "save of a stopped guest",
	"save of a stopped VM",
}

// suite is one part of a run, with its own Subject.
type suite struct {
	Subject
	*results
	announced hv.Host
	host      hv.Host // announced without Subject.Mask
}

// results collects the verdicts of all parts of a run.
type results struct {
	mu       sync.Mutex         // guards the fields below
	verdicts map[string]verdict // name of a check -> result
	ended    *suite             // a part that completed
}

// parts of a run, which run concurrently.
var parts = []struct {
	name string
	run  func(*suite, *testing.T)
	long bool // left out of a short run
}{
	{"life of a VM", (*suite).life, false},
	{"saves", (*suite).saves, false},
	{"many", (*suite).many, true},
}

// Run runs the whole suite. Each part opens a driver; checks share VMs where
// they can, because a real one takes seconds to boot.
func Run(t *testing.T, open func(t *testing.T) Subject) { runParts(t, (*testing.T).Parallel, open) }

// RunSerially is Run for a driver whose host runs few VMs at a time: see Subject.MaxVMs.
func RunSerially(t *testing.T, open func(t *testing.T) Subject) {
	runParts(t, func(*testing.T) {}, open)
}

// runParts runs all parts; schedule is called before a part opens its driver, which may wait for other tests.
func runParts(t *testing.T, schedule func(*testing.T), open func(t *testing.T) Subject) {
	all := &results{verdicts: map[string]verdict{}}
	t.Run("part", func(t *testing.T) {
		for _, p := range parts {
			t.Run(p.name, func(t *testing.T) {
				schedule(t)
				s := &suite{Subject: open(t), results: all}
				if s.Short && p.long {
					t.Skip("left out of a short run")
				}
				s.part(t, p.run)
			})
		}
	})
	if all.ended != nil {
		all.ended.report(t)
	}
}

// part runs one part from an empty driver to an empty driver.
func (s *suite) part(t *testing.T, run func(*suite, *testing.T)) {
	host, err := s.Driver.Describe(t.Context())
	if err != nil {
		t.Fatalf("Describe: %v", err)
	}
	s.announced = host
	host.Capabilities = slices.DeleteFunc(slices.Clone(host.Capabilities), func(c hv.Capability) bool {
		return slices.Contains(s.Mask, c)
	})
	s.host = host
	t.Run("checks", func(t *testing.T) { run(s, t) })
	left, err := s.Driver.List(t.Context())
	if err != nil || len(left) != 0 {
		t.Errorf("after the checks: %d VMs are left, error %v", len(left), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = s
}

// check runs one named check and records its result and duration: see table.go.
func (s *suite) check(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		begun := time.Now()
		t.Cleanup(func() {
			v := verdict{"yes", time.Since(begun)}
			switch {
			case t.Failed():
				v.word = "NO"
			case t.Skipped():
				v.word = "skipped"
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.verdicts[name] = v
		})
		if s.Short && slices.Contains(long, name) {
			t.Skip("left out of a short run")
		}
		f(t)
	})
}

// need skips a check whose ability the driver does not report.
func (s *suite) need(t *testing.T, c hv.Capability) {
	t.Helper()
	if !s.host.HasCapability(c) {
		t.Skipf("driver %s does not offer %s", s.host.Driver, c)
	}
}

// isLinux reports whether a real Linux guest shows its machine in /sys.
func (s *suite) isLinux() bool { return s.Paths == nil && s.host.HasCapability(hv.CanBoot) }

// paths returns a script for the driver's guests. Scripts are written with the paths of Linux guests.
func (s *suite) paths(script string) string {
	var pairs []string
	for from, to := range s.Paths {
		pairs = append(pairs, from, to)
	}
	return strings.NewReplacer(pairs...).Replace(script)
}

func (s *suite) describe(t *testing.T) {
	h := s.host
	for what, v := range map[string]string{
		"driver": h.Driver, "version": h.Version, "accelerator": h.Accelerator, "machine": h.Machine, "cpu": h.CPU,
	} {
		if v == "" {
			t.Errorf("Describe leaves the %s empty", what)
		}
	}
	if h.Arch != "amd64" && h.Arch != "arm64" {
		t.Errorf("architecture %q", h.Arch)
	}
	if !h.HasCapability(hv.CanMacOS) && !h.HasCapability(hv.CanPC) {
		t.Errorf("no guests are announced: %v", h.Capabilities)
	}
	if !slices.IsSorted(h.Capabilities) {
		t.Errorf("abilities are not sorted: %v", h.Capabilities)
	}
}

// warm returns a spec for a guest that merely has to run.
func (s *suite) warm() hv.Spec {
	if s.Warm == nil {
		return s.Spec()
	}
	return s.Warm()
}

// some selects steps at which a save is made to fail.
func (s *suite) some(steps []hv.SaveStep) []hv.SaveStep {
	if s.Steps == nil {
		return steps
	}
	return s.Steps(steps)
}

// start boots a VM and removes it when the test ends.
func (s *suite) start(t *testing.T, spec hv.Spec) hv.VM {
	t.Helper()
	s.deleteLater(t, spec.ID)
	vm, err := s.Driver.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("Start %s: %v", spec.ID, err)
	}
	return vm
}

func (s *suite) deleteLater(t *testing.T, id string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Driver.Delete(ctx, id); err != nil {
			t.Errorf("Delete %s: %v", id, err)
		}
	})
}

func (s *suite) get(t *testing.T, id string) hv.VM {
	t.Helper()
	vm, err := s.Driver.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("Get %s: %v", id, err)
	}
	return vm
}

// eventually polls a condition that another process brings about.
func eventually(t *testing.T, what string, limit time.Duration, f func() bool) {
	t.Helper()
	end := time.Now().Add(limit)
	for !f() {
		if time.Now().After(end) {
			t.Fatalf("waited %s in vain: %s", limit, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
