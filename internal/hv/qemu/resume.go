package qemu

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/guestscript"
)

// maxClockSkew is how far a resumed guest's clock may be from the host's.
const maxClockSkew = 5 * time.Second

// requirementsOf returns what a state of such a VM would depend on here. The spec has its defaults.
func (d *Driver) requirementsOf(s hv.Spec) hv.StateRequirements {
	h, c := d.host, s.Requirements()
	c.Driver, c.Version, c.Machine, c.Accelerator, c.CPU, c.HostCPU = h.Driver, h.Version, h.Machine, h.Accelerator,
		h.CPU, h.HostCPU
	c.Layout = d.platform.video[s.PCSettings().Video].layout
	return c
}

// requirements returns what a state of this running VM depends on: QEMU and the agent that started it may
// be older than those that the host has now.
func (m *machine) requirements() hv.StateRequirements {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.driver.requirementsOf(m.config.Spec)
	c.Version, c.Machine, c.Accelerator, c.CPU = m.config.Version, m.config.Machine, m.config.Accelerator, m.config.CPU
	c.Layout = m.config.Layout
	return c
}

func sameState(a, b *hv.State) bool {
	return a == b || (a != nil && b != nil && *a == *b)
}

// acceptState refuses a state that would not load here, before anything is created.
func (d *Driver) acceptState(s hv.Spec) error {
	d.mu.Lock()
	m := d.machines[s.ID]
	d.mu.Unlock()
	if s.State == nil || (m != nil && !m.resumes(s)) {
		return nil
	}
	if err := s.State.Requirements.CheckEqual(d.requirementsOf(s)); err != nil {
		return err
	}
	if info, err := os.Stat(s.State.Path); err != nil || !info.Mode().IsRegular() {
		return hv.RefusedError("suspended state %s not found", s.State.Path)
	}
	return nil
}

// resumes reports whether a start of the VM would resume from its state.
func (m *machine) resumes(s hv.Spec) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return s.State != nil && !m.config.Refreshed
}

// endAbandonedResume ends a QEMU whose agent was killed before a resume was completed. It may be waiting for
// the state, be paused, or share its random numbers with another VM.
func (m *machine) endAbandonedResume(ctx context.Context, s hv.Spec) error {
	if r := m.currentRun(); r != nil && m.resumes(s) {
		return m.killRun(ctx, r, runEnd{Failure: "the resume was interrupted"})
	}
	return nil
}

// loadState makes a QEMU that waits for a state read it, and resumes the guest.
func (m *machine) loadState(ctx context.Context, r *run, q *qmpConn, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := q.callWithFile(ctx, "getfd", map[string]string{"fdname": stateFdName}, f); err != nil {
		return err
	}
	if err := r.migrate(ctx, q, "migrate-incoming", stateFdName); err != nil {
		return m.stateLoadError(ctx, r, err)
	}
	m.driver.stepHook("start: loaded")
	return q.call(ctx, "cont", nil, nil)
}

// stateLoadError waits for the end of a QEMU that refused its state: the reason is in its log.
func (m *machine) stateLoadError(ctx context.Context, r *run, err error) error {
	if m.awaitEnd(ctx, r, quitTimeout) == nil {
		err = fmt.Errorf("QEMU cannot load the saved VM state (see its log): %w", errProcessGone)
		return farm.MarkFailure(err, farm.FailureTemplate, farm.StepBoot)
	}
	return err
}

// refreshGuest makes a resumed guest distinct from other clones: it sets the current time, then random
// numbers that no other clone has, and only then opens the ports. It runs once for a VM.
func (m *machine) refreshGuest(ctx context.Context, r *run) error {
	m.mu.Lock()
	done := m.config.Spec.State == nil || m.config.Refreshed
	asked, ports := m.config.Spec.Ports, m.config.Ports
	m.mu.Unlock()
	if done {
		return nil
	}
	m.driver.stepHook("start: resumed")
	if err := r.reseed(ctx); err != nil {
		return err
	}
	if err := r.setGuestTime(ctx); err != nil {
		return err
	}
	ports, err := r.openPorts(ctx, asked, ports)
	if err != nil {
		return err
	}
	m.driver.stepHook("start: refreshed")
	return m.updateConfig(func(c *vmConfig) { c.Ports, c.Refreshed = ports, true })
}

// setGuestTime sets the guest's clock to the host's time. Agents report an error also when only the
// hardware clock could not be set, and a busy host delays a call, so the resulting time is checked.
func (r *run) setGuestTime(ctx context.Context) error {
	var off time.Duration
	for range 3 {
		serr := r.guestAgent.call(ctx, "guest-set-time", map[string]int64{"time": time.Now().UnixNano()}, nil)
		var now int64
		if err := r.guestAgent.call(ctx, "guest-get-time", nil, &now); err != nil {
			return errors.Join(serr, err)
		}
		if off = time.Until(time.Unix(0, now)); off.Abs() <= maxClockSkew {
			return nil
		}
		if serr != nil {
			return fmt.Errorf("the clock of the guest is off by %s: %w", off.Round(time.Second), serr)
		}
	}
	return fmt.Errorf("the clock of the guest is off by %s", off.Round(time.Second))
}

// openPorts adds port rules to a running network, and returns them. A host port that was chosen at
// the start and has been taken since then is chosen again.
func (r *run) openPorts(ctx context.Context, asked, ports []hv.PortRule) ([]hv.PortRule, error) {
	q, err := r.awaitMonitor(ctx)
	if err != nil {
		return nil, err
	}
	ports = slices.Clone(ports)
	avoid := map[int]bool{}
	for i := 0; i < len(ports); {
		said, err := addPort(ctx, q, ports[i])
		if err != nil {
			return nil, err
		}
		if said == "" {
			i++
			continue
		}
		taken, isPort := findRefusedPort(asked[i:i+1], ports[i:i+1], said)
		if !isPort {
			return nil, fmt.Errorf("port rule %q: %s", ports[i].Name, sanitizedTail([]byte(said)))
		}
		if err := avoidPort(avoid, taken); err != nil {
			return nil, err
		}
		again, err := r.machine.driver.choosePorts(ctx, r.machine.id, asked[i:i+1], avoid)
		if err != nil {
			return nil, err
		}
		ports[i] = again[0]
	}
	return ports, nil
}

// addPort adds one rule. said is empty unless QEMU could not add it.
func addPort(ctx context.Context, q *qmpConn, p hv.PortRule) (said string, err error) {
	err = q.call(ctx, "human-monitor-command", map[string]string{"command-line": "hostfwd_add net0 " + hostfwdArg(p)},
		&said)
	return said, err
}

// reseed sets new random numbers in a Linux guest, which no other clone has. A guest in which the
// program cannot run is resumed all the same: its own kernel has to respect the generation ID.
func (r *run) reseed(ctx context.Context) error {
	seed := make([]byte, seedBytes)
	_, _ = rand.Read(seed) // never fails
	g := guestCommand{run: r, name: guestscript.NewName()}
	err := g.startProgram(ctx, []string{"/bin/sh", "-c", reseedScript(), "sh", g.name}, nil, seed)
	if _, ok := errors.AsType[*remoteError](err); ok {
		r.machine.driver.log.Warn("reseeding the random number generator of a resumed guest failed", "vm", r.machine.id,
			"error", err)
		return nil
	}
	if err != nil {
		return err
	}
	res, err := g.wait(ctx)
	switch {
	case err != nil:
		return err
	case res.Code == exitCannotRun || res.Code == hv.CodeNotFound:
		r.machine.driver.log.Warn(
			"reseeding the random number generator of a resumed guest failed: the guest cannot run the command", "vm",
			r.machine.id)
	case res.Code != 0:
		return fmt.Errorf("reseeding the random number generator of the guest failed with exit code %d", res.Code)
	}
	return nil
}
