package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/sim"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

var errKilled = errors.New("the agent was killed")

// gate is where an agent can be killed: every durable step, every call of the driver and every
// message passes it. After the kill nothing passes any longer, so whatever the dead agent's
// goroutines still do has no effect, as with kill -9.
type gate struct {
	mu    sync.Mutex
	left  int    // steps until the kill; < 0: never
	at    string // the step that kills; "": none
	passd []string
	dead  chan struct{}
}

func newGate(left int) *gate { return &gate{left: left, dead: make(chan struct{})} }

// killEverywhere runs a life repeatedly, killed at a later step each time, until one was not
// killed: three steps from a random first one, or every step with guesttest.All. There must be at
// least least steps, and fewer than most.
func killEverywhere(t *testing.T, least, most int, live func(t *testing.T, step int) (died bool)) {
	t.Helper()
	stride := 6
	if fulltest.All() {
		stride = 1
	}
	points := rand.IntN(stride)
	for ; points < most; points += stride {
		died := true
		ok := t.Run(fmt.Sprint(points), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { died = live(t, points) })
		})
		if !ok || !died {
			break
		}
	}
	if points < least || points >= most {
		t.Errorf("%d steps to be killed at: the gates are not passed", points)
	}
	t.Logf("killed at every %d of %d steps", stride, points)
}

func (g *gate) pass(step string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isDead() {
		return errKilled
	}
	g.passd = append(g.passd, step)
	if g.left == 0 || step == g.at {
		close(g.dead)
		return errKilled
	}
	g.left--
	return nil
}

// killAfter kills after the given number of further steps.
func (g *gate) killAfter(steps int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = steps
}

// killAt kills at the next step with a name.
func (g *gate) killAt(step string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at = step
}

// passed lists the steps that were taken.
func (g *gate) passed() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.passd)
}

func (g *gate) isDead() bool {
	select {
	case <-g.dead:
		return true
	default:
		return false
	}
}

func (g *gate) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isDead() {
		close(g.dead)
	}
}

type gatedSource struct {
	*source
	g *gate
}

func (s gatedSource) Fetch(ctx context.Context, p cache.Pull) (map[string]cache.BuiltFile, error) {
	if err := s.g.pass("fetch"); err != nil {
		return nil, err
	}
	roots, err := s.source.Fetch(ctx, p)
	if err != nil {
		return nil, err
	}
	return roots, s.g.pass("fetched")
}

type gatedLink struct {
	c *controller
	g *gate
}

func (l gatedLink) Poll(ctx context.Context, wait time.Duration, in api.PollRequest) (api.PollAnswer, error) {
	if l.g.isDead() {
		return api.PollAnswer{}, errKilled
	}
	out, err := l.c.Poll(ctx, wait, in)
	if err == nil && len(out.Orders) > 0 {
		err = l.g.pass("orders")
	}
	return out, err
}

func (l gatedLink) Report(ctx context.Context, in api.Report) (api.ReportAnswer, error) {
	if err := l.g.pass("report"); err != nil {
		return api.ReportAnswer{}, err
	}
	out, err := l.c.Report(ctx, in)
	if err == nil {
		err = l.g.pass("reported")
	}
	return out, err
}

// gatedDriver lets calls that were begun continue without their dead agent, as a hypervisor does.
type gatedDriver struct {
	*sim.Host
	g *gate
	w *world
}

func through[T any](ctx context.Context, g *gate, name string, call func(context.Context) (T, error)) (T, error) {
	var none T
	if err := g.pass(name); err != nil {
		return none, err
	}
	type answer struct {
		v   T
		err error
	}
	inner, cancel := context.WithCancel(context.Background())
	done := make(chan answer, 1)
	go func() {
		defer cancel()
		v, err := call(inner)
		done <- answer{v, err}
	}()
	select {
	case <-g.dead:
		return none, errKilled
	case <-ctx.Done():
		if g.isDead() {
			return none, errKilled
		}
		cancel()
		a := <-done
		return a.v, a.err
	case a := <-done:
		if err := g.pass(name + " done"); err != nil {
			return none, err
		}
		return a.v, a.err
	}
}

// List may be slow after it has read the VMs.
func (d gatedDriver) List(ctx context.Context) ([]hv.VM, error) {
	vms, err := d.Host.List(ctx)
	d.w.mu.Lock()
	listing := d.w.listing
	d.w.mu.Unlock()
	time.Sleep(listing)
	return vms, err
}

func (d gatedDriver) Stop(ctx context.Context, id string, how hv.StopMode) error {
	_, err := through(ctx, d.g, "stop", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, d.Host.Stop(ctx, id, how)
	})
	return err
}

func (d gatedDriver) Delete(ctx context.Context, id string) error {
	_, err := through(ctx, d.g, "delete", func(ctx context.Context) (struct{}, error) {
		if d.w.clinging() {
			return struct{}{}, errors.New("the VM clings")
		}
		defer d.w.alone(id)()
		if _, err := d.Host.Get(ctx, id); err == nil {
			d.w.count(&d.w.deletes)
		}
		return struct{}{}, d.Host.Delete(ctx, id)
	})
	return err
}

func (d gatedDriver) Exec(ctx context.Context, id string, c hv.Command) (hv.Result, error) {
	return through(ctx, d.g, "exec", func(ctx context.Context) (hv.Result, error) {
		switch grows := bytes.Equal(c.Stdin, hv.GrowFileSystemCommand(0).Stdin); {
		case grows:
			d.w.count(&d.w.grown)
			if err := d.w.fault("grow"); err != nil {
				return hv.Result{Code: 1, Stderr: []byte(err.Error())}, nil
			}
		case c.AwaitInput != nil:
			if err := d.w.fault("shell"); err != nil {
				return hv.Result{}, err
			}
			await, lost := c.AwaitInput, d.w.fault("shell with input")
			c.AwaitInput = func(ctx context.Context) (hv.Input, error) {
				d.w.add(&d.w.shells, 1)
				defer d.w.add(&d.w.shells, -1)
				input, err := await(ctx)
				if err == nil && lost != nil {
					return hv.Input{}, errors.Join(hv.ErrNoInput, lost)
				}
				if len(input.Stdin) > 0 {
					d.w.count(&d.w.scripts)
				}
				return input, err
			}
		case len(c.Stdin) > 0:
			d.w.count(&d.w.scripts)
			if d.w.fault("time-out") != nil {
				c.Timeout = 0
			}
		}
		return d.Host.Exec(ctx, id, c)
	})
}

func (d gatedDriver) Start(ctx context.Context, s hv.Spec) (hv.VM, error) {
	what := "start"
	if s.Labels[labelRole] == roleTestVM {
		what = "start check"
	}
	return through(ctx, d.g, what, func(ctx context.Context) (hv.VM, error) {
		if err := d.w.fault(what); err != nil {
			return hv.VM{}, err
		}
		if what == "start" {
			d.w.count(&d.w.starts)
		}
		return d.Host.Start(ctx, s)
	})
}

// alone fails the test when two callers remove a VM concurrently; a removal takes a moment.
func (w *world) alone(id string) (done func()) {
	w.mu.Lock()
	if w.removing[id] {
		w.t.Errorf("VM %s is removed by two at a time", id)
	}
	if w.removing == nil {
		w.removing = map[string]bool{}
	}
	w.removing[id] = true
	w.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.removing, id)
	}
}

// bare is a driver that has only what every driver has.
type bare struct{ hv.Driver }

// Save passes the gate at each of its steps; a killed agent leaves its files behind.
func (d gatedDriver) Save(ctx context.Context, id string, s hv.SaveSpec) (hv.SaveResult, error) {
	if err := d.g.pass("save"); err != nil {
		return hv.SaveResult{}, err
	}
	if err := d.w.fault("save"); err != nil {
		return hv.SaveResult{}, err
	}
	d.w.count(&d.w.saved)
	s.Step = func(step hv.SaveStep) error {
		return errors.Join(d.w.fault("save "+string(step)), d.g.pass("save "+string(step)))
	}
	out, err := d.Host.Save(ctx, id, s)
	if d.g.isDead() {
		_ = os.WriteFile(filepath.Join(s.Dir, "delta0.qcow2"), []byte("half"), 0o600)
		return hv.SaveResult{}, errKilled
	}
	return out, err
}

func (d gatedDriver) Restart(ctx context.Context, id string, edit func(*hv.Spec)) (hv.VM, error) {
	return through(ctx, d.g, "restart", func(ctx context.Context) (hv.VM, error) {
		d.w.count(&d.w.restarts)
		if err := d.w.fault("restart refused"); err != nil {
			return hv.VM{}, err
		}
		if err := d.w.fault("restart"); err != nil {
			return hv.VM{}, errors.Join(err, d.Host.Stop(ctx, id, hv.StopForce))
		}
		return d.Host.Restart(ctx, id, edit)
	})
}
