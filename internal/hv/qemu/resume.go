package qemu

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// clockSlack is how far a resumed guest's clock may be from the host's.
const clockSlack = 5 * time.Second

// compatOf is what a state of such a VM would depend on here. The spec is settled.
func (d *Driver) compatOf(s hv.Spec) hv.Compat {
	h, c := d.host, s.Pin()
	c.Driver, c.Version, c.Machine, c.Accelerator, c.CPU, c.HostCPU = h.Driver, h.Version, h.Machine, h.Accelerator, h.CPU, h.HostCPU
	c.Layout = videos[s.Video].layout
	return c
}

// compat is what a state of this running VM depends on: its QEMU may be older
// than the one that the host has now.
func (m *machine) compat() hv.Compat {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.d.compatOf(m.cfg.Spec)
	c.Version, c.Machine, c.Accelerator, c.CPU = m.cfg.Version, m.cfg.Machine, m.cfg.Accelerator, m.cfg.CPU
	return c
}

// acceptState refuses a state that would not load here, before anything is made.
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
		return hv.Refuse("there is no suspended state at %s", s.State.Path)
	}
	return nil
}

// resumes says whether a start of the VM would go on from its state. Once its
// guest has run, the disks have moved on and the state is used up.
func (m *machine) resumes(s hv.Spec) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return s.State != nil && !m.cfg.Resumed
}

// abandoned ends a QEMU whose agent was killed before the guest went on.
func (m *machine) abandoned(ctx context.Context, s hv.Spec) error {
	if r := m.current(); r != nil && m.resumes(s) {
		return m.kill(ctx, r, ending{Failure: "the resume was interrupted"})
	}
	return nil
}

// load has a QEMU that waits for a state read it, and lets the guest go on.
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
	if err := m.noteSave(func(c *config) { c.Resumed = true }); err != nil {
		return err
	}
	m.d.step("start: resumed")
	return q.call(ctx, "cont", nil, nil)
}

// unloaded waits for the end of a QEMU that refused its state: its log says why.
func (m *machine) unloaded(ctx context.Context, r *run, err error) error {
	if m.awaitGone(ctx, r, quitGrace) == nil {
		return fmt.Errorf("the suspended state does not load: %w", errGone)
	}
	return err
}

// refresh makes a resumed guest a VM of its own: the time of now, random numbers
// that no other clone has, and only then the way in. It is done once for a VM;
// an agent killed before its end does it again.
func (m *machine) refresh(ctx context.Context, r *run) error {
	m.mu.Lock()
	done := m.cfg.Spec.State == nil || m.cfg.Refreshed
	ports := m.cfg.Ports
	m.mu.Unlock()
	if done {
		return nil
	}
	if err := r.reseed(ctx); err != nil {
		return err
	}
	if err := r.setTime(ctx); err != nil {
		return err
	}
	if err := r.openPorts(ctx, ports); err != nil {
		return err
	}
	return m.noteSave(func(c *config) { c.Refreshed = true })
}

// setTime gives the guest the host's time. Agents report an error also when
// only the hardware clock could not be set, so the outcome is looked at.
func (r *run) setTime(ctx context.Context) error {
	err := r.agent.call(ctx, "guest-set-time", map[string]int64{"time": time.Now().UnixNano()}, nil)
	if err == nil {
		return nil
	}
	var now int64
	if gerr := r.agent.call(ctx, "guest-get-time", nil, &now); gerr != nil {
		return errors.Join(err, gerr)
	}
	if off := time.Until(time.Unix(0, now)); off.Abs() > clockSlack {
		return fmt.Errorf("the guest's clock is off by %s: %w", off.Round(time.Second), err)
	}
	return nil
}

// openPorts adds port rules to a network that runs. QEMU answers text: none
// when it did as it was told.
func (r *run) openPorts(ctx context.Context, ports []hv.PortRule) error {
	q, err := r.monitorWithin(ctx)
	if err != nil {
		return err
	}
	for _, p := range ports {
		host := fmt.Sprintf("%s:%s:%d", p.Protocol, p.HostIP, p.HostPort)
		var text string
		_ = q.call(ctx, "human-monitor-command", map[string]string{"command-line": "hostfwd_remove net0 " + host}, nil)
		err := q.call(ctx, "human-monitor-command", map[string]string{"command-line": fmt.Sprintf("hostfwd_add net0 %s-:%d", host, p.GuestPort)}, &text)
		if err != nil {
			return err
		}
		if text != "" {
			return fmt.Errorf("port rule %q: %s", p.Name, legible([]byte(text)))
		}
	}
	return nil
}

// reseed gives a Linux guest random numbers of its own. A guest in which the
// program cannot run is let go on: its own kernel has to heed the generation id.
func (r *run) reseed(ctx context.Context) error {
	seed := make([]byte, seedBytes)
	_, _ = rand.Read(seed) // never fails
	g := guestCommand{r: r, name: ".seed-" + token()}
	err := g.begin(ctx, []string{"-c", reseedScript(), "sh", g.name}, nil, seed)
	if _, ok := errors.AsType[*remoteError](err); ok {
		r.m.d.log.Warn("a resumed guest cannot be given new random numbers", "vm", r.m.id, "error", err)
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
		r.m.d.log.Warn("a resumed guest cannot run the program for new random numbers", "vm", r.m.id)
	case res.Code != 0:
		return fmt.Errorf("the guest's random numbers could not be renewed (exit code %d)", res.Code)
	}
	return nil
}
