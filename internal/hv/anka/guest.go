package anka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/internal/hv/guestscript"
)

const (
	readyTimeout = 15 * time.Second // for one attempt to reach the guest
	readyDelay   = 200 * time.Millisecond
	execTimeout  = 30 * 24 * time.Hour
	outputExtra  = 4 << 10 // bytes of an output above hv.MaxOutputBytes: the report of the exit code
)

// awaitReady waits until the guest runs commands and, where the spec asks for it, has an address.
func (m *machine) awaitReady(ctx context.Context, s hv.Spec) error {
	for isReady := false; ; {
		shown, err := m.cli.show(ctx, m.name())
		if err == nil && shown.Status != statusRunning {
			return errors.New(endReason(shown.Status))
		}
		if err == nil && !isReady {
			probe := guestscript.CommandArgs(guestscript.NewName(), hv.Command{Path: "/usr/bin/true"})
			attempt, cancel := context.WithTimeout(ctx, readyTimeout)
			err = m.runsSince(shown.PID).run(attempt, probe, nil, io.Discard, io.Discard)
			cancel()
			isReady = err == nil
			if err != nil {
				m.transcript.add([]string{"run", m.name()}, cliproc.Result{}, err)
			}
		}
		if err == nil && s.WaitsForAddress() && shown.IP == "" {
			err = errors.New("the guest has no address")
		}
		if err == nil {
			return nil
		}
		if waited := sleep(ctx, readyDelay); waited != nil {
			return fmt.Errorf("%w: %w", waited, err)
		}
	}
}

// guestRun is one run of the VM. Nothing is run in the guest after its end: anka would start the VM again.
type guestRun struct {
	machine *machine
	process cliproc.Process // of the VM; zero if anka does not show it
}

// runsSince returns the run whose process anka shows now.
func (m *machine) runsSince(pid int) guestRun {
	p, _ := cliproc.Find(pid) // one that has ended is not alive, whatever it is
	if pid != 0 && p.PID == 0 {
		p.PID = pid
	}
	return guestRun{m, p}
}

func (g guestRun) hasEnded() bool { return g.process.PID != 0 && !g.process.IsAlive() }

// run is a guestscript.Run.
func (g guestRun) run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if g.hasEnded() {
		return hv.ErrNotRunning
	}
	cli := g.machine.cli
	r, err := cliproc.Run(ctx, cliproc.Command{
		Path: cli.path, Args: append([]string{"run", g.machine.name()}, args...), Env: cli.env, Stdin: stdin,
		Timeout: execTimeout, KeepBytes: hv.MaxOutputBytes + outputExtra,
	})
	_, outErr := stdout.Write(r.Stdout)
	_, textErr := stderr.Write(r.Stderr)
	return errors.Join(err, outErr, textErr)
}

var _ guestscript.Run = guestRun{}.run

// Exec runs a command in the guest as the image's user.
func (d *Driver) Exec(ctx context.Context, id string, cmd hv.Command) (hv.Result, error) {
	if err := cmd.Validate(); err != nil {
		return hv.Result{}, fmt.Errorf("anka: %w", err)
	}
	vm, err := d.Get(ctx, id)
	if err != nil {
		return hv.Result{}, err
	}
	if vm.Status != hv.Running {
		return hv.Result{}, fmt.Errorf("anka: VM %s: %w", id, hv.ErrNotRunning)
	}
	g := d.machine(id).runsSince(vm.PID)
	result, err := guestscript.Exec(ctx, g.run, cmd)
	if err == nil {
		return result, nil
	}
	if g.hasEnded() {
		err = errors.Join(hv.ErrNotRunning, err, g.endAnother(ctx))
	}
	return hv.Result{}, fmt.Errorf("anka: run command in VM %s: %w", id, err)
}

// endAnother ends a run that a command has begun by accident, because the VM ended just before it.
func (g guestRun) endAnother(ctx context.Context) error {
	m := g.machine
	if !m.busy.TryLock() {
		return nil // a call that changes the VM brings it to the state that is wanted
	}
	defer m.busy.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forceTimeout)
	defer cancel()
	shown, err := m.cli.show(ctx, m.name())
	if err != nil || shown.Status != statusRunning {
		return nil //nolint:nilerr // nothing to end
	}
	m.driver.log.WarnContext(ctx, "a command has started a VM that had ended; it is stopped", "vm", m.id)
	return m.force(ctx)
}
