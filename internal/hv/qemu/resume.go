package qemu

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// clockSlack is how far a resumed guest's clock may be from the host's.
const clockSlack = 5 * time.Second

// compatOf returns what a state of such a VM would depend on here. The spec has its defaults.
func (d *Driver) compatOf(s hv.Spec) hv.Compat {
	h, c := d.host, s.Requirements()
	c.Driver, c.Version, c.Machine, c.Accelerator, c.CPU, c.HostCPU = h.Driver, h.Version, h.Machine, h.Accelerator,
		h.CPU, h.HostCPU
	c.Layout = videos[s.Video].layout
	return c
}

// compat returns what a state of this running VM depends on: QEMU and the agent that started it may
// be older than those that the host has now.
func (m *machine) compat() hv.Compat {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.d.compatOf(m.cfg.Spec)
	c.Version, c.Machine, c.Accelerator, c.CPU = m.cfg.Version, m.cfg.Machine, m.cfg.Accelerator, m.cfg.CPU
	c.Layout = m.cfg.Layout
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
	if err := s.State.Pin.Check(d.compatOf(s)); err != nil {
		return err
	}
	if info, err := os.Stat(s.State.Path); err != nil || !info.Mode().IsRegular() {
		return hv.Refuse("suspended state %s not found", s.State.Path)
	}
	return nil
}

// resumes reports whether a start of the VM would resume from its state.
func (m *machine) resumes(s hv.Spec) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return s.State != nil && !m.cfg.Refreshed
}

// abandoned ends a QEMU whose agent was killed before a resume was completed. It may be waiting for
// the state, be paused, or share its random numbers with another VM.
func (m *machine) abandoned(ctx context.Context, s hv.Spec) error {
	if r := m.current(); r != nil && m.resumes(s) {
		return m.kill(ctx, r, runEnd{Failure: "the resume was interrupted"})
	}
	return nil
}

// load makes a QEMU that waits for a state read it, and resumes the guest.
func (m *machine) load(ctx context.Context, r *run, q *qmpConn, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := q.pass(ctx, "getfd", map[string]string{"fdname": stateFd}, f); err != nil {
		return err
	}
	if err := r.migrate(ctx, q, "migrate-incoming", stateFd); err != nil {
		return m.unloaded(ctx, r, err)
	}
	m.d.step("start: loaded")
	return q.call(ctx, "cont", nil, nil)
}

// unloaded waits for the end of a QEMU that refused its state: the reason is in its log.
func (m *machine) unloaded(ctx context.Context, r *run, err error) error {
	if m.awaitEnd(ctx, r, quitGrace) == nil {
		return fmt.Errorf("QEMU cannot load the saved VM state: %w", errGone)
	}
	return err
}

// refresh makes a resumed guest distinct from other clones: it sets the current time, then random
// numbers that no other clone has, and only then opens the ports. It runs once for a VM.
func (m *machine) refresh(ctx context.Context, r *run) error {
	m.mu.Lock()
	done := m.cfg.Spec.State == nil || m.cfg.Refreshed
	asked, ports := m.cfg.Spec.Ports, m.cfg.Ports
	m.mu.Unlock()
	if done {
		return nil
	}
	m.d.step("start: resumed")
	if err := r.reseed(ctx); err != nil {
		return err
	}
	if err := r.setTime(ctx); err != nil {
		return err
	}
	ports, err := r.openPorts(ctx, asked, ports)
	if err != nil {
		return err
	}
	m.d.step("start: refreshed")
	return m.noteSave(func(c *config) { c.Ports, c.Refreshed = ports, true })
}

// setTime sets the guest's clock to the host's time. Agents report an error also when only the
// hardware clock could not be set, and a busy host delays a call, so the resulting time is checked.
func (r *run) setTime(ctx context.Context) error {
	var off time.Duration
	for range 3 {
		serr := r.agent.call(ctx, "guest-set-time", map[string]int64{"time": time.Now().UnixNano()}, nil)
		var now int64
		if err := r.agent.call(ctx, "guest-get-time", nil, &now); err != nil {
			return errors.Join(serr, err)
		}
		if off = time.Until(time.Unix(0, now)); off.Abs() <= clockSlack {
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
	q, err := r.monitorWithin(ctx)
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
		taken, isPort := refusedPort(asked[i:i+1], ports[i:i+1], said)
		if !isPort {
			return nil, fmt.Errorf("port rule %q: %s", ports[i].Name, legible([]byte(said)))
		}
		if err := avoidPort(avoid, taken); err != nil {
			return nil, err
		}
		again, err := r.m.d.choosePorts(ctx, r.m.id, asked[i:i+1], avoid)
		if err != nil {
			return nil, err
		}
		ports[i] = again[0]
	}
	return ports, nil
}

// addPort adds one rule. said is empty unless QEMU could not add it.
func addPort(ctx context.Context, q *qmpConn, p hv.PortRule) (said string, err error) {
	err = q.call(ctx, "human-monitor-command", map[string]string{"command-line": "hostfwd_add net0 " + forward(p)},
		&said)
	return said, err
}

// reseed sets new random numbers in a Linux guest, which no other clone has. A guest in which the
// program cannot run is resumed all the same: its own kernel has to respect the generation ID.
func (r *run) reseed(ctx context.Context) error {
	seed := make([]byte, seedBytes)
	_, _ = rand.Read(seed) // never fails
	g := guestCommand{r: r, name: ".seed-" + token()}
	err := g.begin(ctx, []string{"-c", reseedScript(), "sh", g.name}, nil, seed)
	if _, ok := errors.AsType[*remoteError](err); ok {
		r.m.d.log.Warn("reseeding the random number generator of a resumed guest failed", "vm", r.m.id, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	res, err := g.wait(ctx)
	switch {
	case err != nil:
		return err
	case res.Code == cannotRun || res.Code == hv.CodeNotFound:
		r.m.d.log.Warn(
			"reseeding the random number generator of a resumed guest failed: the guest cannot run the command", "vm",
			r.m.id)
	case res.Code != 0:
		return fmt.Errorf("reseeding the random number generator of the guest failed with exit code %d", res.Code)
	}
	return nil
}
