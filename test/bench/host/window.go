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
	pid    int
	began  time.Time
	before int64
	own    int64
	all    machine
}

// spent is what a window saw.
type spent struct {
	wall   time.Duration
	ticks  int64   // of the service
	others float64 // part of one core that the rest of the machine used, the benchmark apart
	writes int64   // of all disks
	kb     int64
}

func (s spent) String() string {
	return fmt.Sprintf("%d ticks in %.1f s, others %.1f %% of a core and %d writes of %d KB to disks", s.ticks, s.wall.Seconds(), 100*s.others, s.writes, s.kb)
}

// share is the part of one core that the service used.
func (s spent) share() float64 { return float64(s.ticks) * float64(tick) / float64(s.wall) }

func open(pid int) (w window, err error) {
	w.pid = pid
	var errs [3]error
	w.all, errs[0] = machineNow()
	w.own, errs[1] = ticks(os.Getpid())
	w.before, errs[2] = ticks(pid)
	w.began = time.Now()
	return w, errors.Join(errs[:]...)
}

func (w window) close() (s spent, err error) {
	s.wall = time.Since(w.began)
	var errs [3]error
	var all machine
	var own int64
	s.ticks, errs[0] = ticks(w.pid)
	own, errs[1] = ticks(os.Getpid())
	all, errs[2] = machineNow()
	s.ticks -= w.before
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
		b.say("idle: %s", u)
		if u.others <= quiet {
			return u, nil
		}
		if try == quietTries {
			return u, fmt.Errorf("the machine is not quiet: others use %.0f %% of a core, more than %.0f %%", 100*u.others, 100*quiet)
		}
	}
}
