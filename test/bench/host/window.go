package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// window is a stretch of time in which a service is looked at, from outside alone.
type window struct {
	pid      int
	began    time.Time
	before   int64
	children int64 // of before
	exact    time.Duration
	own      int64
	all      machine
}

// spent is what a window saw.
type spent struct {
	wall   time.Duration
	ticks  int64 // of the service, as the kernel counts them
	exact  time.Duration
	whole  int64   // ticks that are in exact, and those of children
	others float64 // part of one core that the rest of the machine used, the benchmark apart
	writes int64   // of all disks
	kb     int64
}

func (s spent) String() string {
	return fmt.Sprintf(
		"%.2f ms of processor time in %.1f s (the kernel's count of ticks went up by %d), others %.1f %% of a core "+
			"and %d writes of %d KB to disks", float64(s.exact)/float64(time.Millisecond), s.wall.Seconds(), s.ticks,
		100*s.others, s.writes, s.kb)
}

// share is the part of one core that the service used.
func (s spent) share() float64 { return float64(s.ticks) * float64(tick) / float64(s.wall) }

func open(pid int) (w window, err error) {
	w.pid = pid
	var errs [4]error
	w.all, errs[0] = machineNow()
	w.own, _, errs[1] = ticks(os.Getpid())
	w.before, w.children, errs[2] = ticks(pid)
	w.exact, errs[3] = clock(pid)
	w.began = time.Now()
	return w, errors.Join(errs[:]...)
}

func (w window) close() (s spent, err error) {
	s.wall = time.Since(w.began)
	var errs [4]error
	var all machine
	var own, children int64
	s.exact, errs[3] = clock(w.pid)
	s.ticks, children, errs[0] = ticks(w.pid)
	own, _, errs[1] = ticks(os.Getpid())
	all, errs[2] = machineNow()
	s.ticks -= w.before
	s.exact -= w.exact
	s.whole = int64(s.exact/tick) + children - w.children
	others := all.busy - w.all.busy - s.ticks - (own - w.own)
	s.others = max(0, float64(others)*float64(tick)/float64(s.wall))
	s.writes, s.kb = all.writes-w.all.writes, all.kb-w.all.kb
	return s, errors.Join(errs[:]...)
}

// watch looks at a service for a while.
func (s *service) watch(ctx context.Context, d time.Duration) (spent, error) {
	w, err := open(s.process.PID())
	if err != nil {
		return spent{}, err
	}
	if !rig.Pause(ctx, d) {
		return spent{}, context.Cause(ctx)
	}
	return w.close()
}

const (
	quiet      = 0.15 // part of one core that others may use while idling is measured
	quietTries = 4
)

// watchQuiet is watch on a machine on which nothing else happens: another window is tried
// when something did.
func (b *bench) watchQuiet(ctx context.Context, s *service, d time.Duration) (spent, error) {
	for try := 1; ; try++ {
		u, err := s.watch(ctx, d)
		if err != nil {
			return u, err
		}
		b.Say("idle: %s", u)
		if u.others <= quiet {
			return u, nil
		}
		if try == quietTries {
			return u, fmt.Errorf("the machine is not quiet: others use %.0f %% of a core, more than %.0f %%",
				100*u.others, 100*quiet)
		}
	}
}
