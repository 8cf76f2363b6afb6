package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/rig"
)

const mixedName = "mixed load"

// callersName is the mixed load to which callers with an API key are added. They fill their share of every limit:
// what waits for them stays in the server's memory.
const callersName = mixedName + " with callers"

// What a mixed load may cost others.
const (
	slowerAtMost      = 3.0
	largerAtMost      = 1.5
	largerWithCallers = 4.0
)

// The normal load: that of a cloud of a hundred nodes, where ten jobs begin per second, whose
// instances work for a second.
const (
	normalNodes = 100
	jobEvery    = 100 * time.Millisecond
	jobHold     = time.Second
	leastBase   = time.Minute
)

// phase is what was measured of the normal load.
type phase struct {
	Seconds float64 `json:"seconds"`
	Started int     `json:"started"`
	Failed  int     `json:"failed"` // calls
	Lost    int     `json:"lost"`   // instances
	P50     float64 `json:"p50_ms"` // create -> Started
	P99     float64 `json:"p99_ms"`
	Memory  int64   `json:"memory_peak_bytes"` // of the server
}

func (p phase) String() string {
	return fmt.Sprintf(
		"%.0f s, %d jobs started, create -> Started p50 %.0f ms, p99 %.0f ms, memory at most %d MiB, %d calls failed, "+
			"%d instances lost",
		p.Seconds, p.Started, p.P50, p.P99, p.Memory>>20, p.Failed, p.Lost)
}

// mixed is the outcome of the mixed load.
type mixed struct {
	Alone    phase `json:"alone"`
	Attacked phase `json:"attacked"`
	Callers  phase `json:"callers"`
	Left     int   `json:"left"` // VMs that are left over
}

// slower returns how many times the p99 of a phase is that of the normal jobs alone.
func (r *mixed) slower(p phase) float64 { return p.P99 / max(r.Alone.P99, 1) }

// larger returns how many times the memory of a phase is that of the normal jobs alone.
func (r *mixed) larger(p phase) float64 { return float64(p.Memory) / float64(max(r.Alone.Memory, 1)) }

// mixedLoad measures normal jobs alone, with all attackers from outside, and with hostile callers as well.
func (x *runner) mixedLoad(ctx context.Context) {
	r, err := x.mix(ctx)
	if err != nil {
		x.add(row{Name: mixedName, Fault: err.Error()})
		return
	}
	x.Mixed = r
	for _, row := range r.rows() {
		x.add(row)
	}
}

// rows compares the figures of both attacked phases with their targets.
func (r *mixed) rows() []row {
	return []row{r.row(mixedName, r.Attacked, largerAtMost), r.row(callersName, r.Callers, largerWithCallers)}
}

func (r *mixed) row(name string, attacked phase, larger float64) row {
	o := &outcome{}
	for _, fault := range []struct {
		is   bool
		says string
	}{
		{r.Alone.Started == 0 || attacked.Started == 0, "a phase has no jobs"},
		{r.slower(attacked) > slowerAtMost, "starts are too slow during the attack"},
		{r.larger(attacked) > larger, "the server takes too much memory"},
		{r.Alone.Lost+attacked.Lost > 0, "instances were lost"},
		{r.Alone.Failed+attacked.Failed > 0, "calls of normal jobs failed"},
		{r.Left > 0, "VMs are left over"},
	} {
		if o.take("measured"); fault.is {
			o.fault("%s", fault.says)
		}
	}
	o.effect("p99 x %.2f (at most %.1f), memory x %.2f (at most %.1f), %d lost, %d left over", r.slower(attacked),
		slowerAtMost,
		r.larger(attacked), larger, r.Alone.Lost+attacked.Lost, r.Left)
	return o.row(name)
}

// mix runs the phases.
func (x *runner) mix(ctx context.Context) (r *mixed, err error) {
	s := &site{arrangement: arrangement{nodes: normalNodes}, dir: x.dir + "/mixed", programs: x.programs}
	unmount, err := mount(ctx, s.storage(), storageSize)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close(), unmount()) }()
	if err := s.open(ctx); err != nil {
		return nil, err
	}

	whole := time.Duration(x.minutes * float64(time.Minute))
	r = &mixed{}
	if r.Alone, err = s.normal(ctx, x.out, max(whole/10, leastBase)); err != nil {
		return nil, err
	}
	fmt.Fprintln(x.out, "alone:   ", r.Alone)
	attacking, stop := context.WithCancel(ctx)
	defer stop()
	attackers, err := s.attackAll(attacking, x.among)
	if err != nil {
		return nil, err
	}
	if r.Attacked, err = s.normal(ctx, x.out, whole); err != nil {
		return nil, err
	}
	fmt.Fprintln(x.out, "attacked:", r.Attacked)
	if err := s.attackAsCaller(attacking, attackers); err != nil {
		return nil, err
	}
	if r.Callers, err = s.normal(ctx, x.out, max(whole/3, leastBase)); err != nil {
		return nil, err
	}
	fmt.Fprintln(x.out, "callers: ", r.Callers)
	stop()
	for _, one := range attackers.end() {
		x.add(one)
	}
	o := &outcome{}
	if attackers.member.leave(ctx, o); len(o.faults) > 0 {
		return nil, errors.Join(o.faults...)
	}
	if r.Left, err = s.leftOver(ctx); err != nil {
		return nil, err
	}
	return r, ctx.Err()
}

// normal runs normal jobs for a time.
func (s *site) normal(ctx context.Context, out io.Writer, length time.Duration) (p phase, err error) {
	j := &jobs{by: s.other, template: s.a, group: s.builds, hold: jobHold}
	began, peak := time.Now(), s.watchMemory(ctx)
	var wg sync.WaitGroup
	tick := time.NewTicker(jobEvery)
	defer tick.Stop()
	for time.Since(began) < length && ctx.Err() == nil {
		wg.Go(func() { j.one(ctx) })
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	wg.Wait()
	p = phase{
		Seconds: time.Since(began).Seconds(), Started: len(j.starts), Failed: len(j.failed), Lost: len(j.lost),
		Memory: peak(),
		P50:    ms(quantile(j.starts, 0.5)), P99: ms(quantile(j.starts, 0.99)),
	}
	for i, err := range append(j.lost, j.failed...) {
		if i == mostFaults {
			break
		}
		fmt.Fprintln(out, "a normal job:", err)
	}
	if !s.up.Running() {
		return p, fmt.Errorf("the service has ended: %s", s.up.Tail())
	}
	return p, ctx.Err()
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// leftOver ends what attackers have left and counts the VMs that are still there then.
func (s *site) leftOver(ctx context.Context) (left int, err error) {
	err = s.await(ctx, "the end of all instances", func() (bool, error) {
		list, err := s.other.Instances(ctx, client.ListOptions{})
		var alive []string
		left = 0
		for _, item := range list {
			switch item.VM.InstanceState {
			case "Terminated":
				continue
			case "Terminating":
			default:
				alive = append(alive, item.InstanceID)
			}
			left++
		}
		o := &outcome{}
		s.endAll(ctx, o, alive)
		return left == 0, errors.Join(append(o.faults, err)...)
	})
	if err != nil {
		return left, err
	}
	err = s.await(ctx, "nodes without VMs", func() (bool, error) {
		var list []api.Node
		err := s.rooted.get(ctx, "GET "+s.controller+"/api/v1/node", nil, &list)
		left = 0
		for _, n := range list {
			left += int(n.VMCount)
		}
		return left == 0, err
	})
	if left > 0 {
		return left, nil
	}
	return left, err
}

// storageSize is that of the registry's file system, in MB: it is filled up now and then.
const storageSize = 256

// attackers are all concurrent attackers.
type attackers struct {
	wg    sync.WaitGroup
	by    map[string]*outcome
	names []string

	among  *regexp.Regexp // only these
	member *member        // the hostile node
}

// every lets an attacker act at a rate, until ctx ends. Attackers of the same name are counted together.
func (a *attackers) every(
	ctx context.Context, name string, pause time.Duration, do func(ctx context.Context, o *outcome, n int),
) {
	if !a.among.MatchString(name) {
		return
	}
	o := a.by[name]
	if o == nil {
		o = &outcome{}
		a.by[name], a.names = o, append(a.names, name)
	}
	a.wg.Go(func() {
		for n := 0; rig.Pause(ctx, pause); n++ {
			do(ctx, o, n)
		}
	})
}

// end waits for the attackers and returns their rows. They only count: the normal jobs decide the
// result.
func (a *attackers) end() (rows []row) {
	a.wg.Wait()
	for _, name := range a.names {
		o := a.by[name]
		o.mu.Lock()
		o.faults = nil // such as requests that the end has broken off
		o.mu.Unlock()
		o.effect("see the mixed load")
		rows = append(rows, o.row(mixedName+": "+name))
	}
	return rows
}

// fullAndFree fills the registry's file system and frees it again.
func (s *site) fullAndFree(ctx context.Context, o *outcome, _ int) {
	file, err := fill(s.storage())
	o.check(err)
	if _, err := s.push(ctx, "", "full", "v1"); err != nil {
		o.refuse("push refused")
	} else {
		o.take("pushed")
	}
	rig.Pause(ctx, 10*time.Second)
	o.check(os.Remove(file))
}
