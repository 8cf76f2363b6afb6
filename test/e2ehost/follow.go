package main

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// follower polls the report, and records when a package first appeared in it and when it
// disappeared.
type follower struct {
	v    *service
	stop context.CancelFunc
	done chan struct{}

	mu    sync.Mutex // guards the fields below
	now   map[packageFile]bool
	first map[packageFile]time.Time
	last  map[packageFile]time.Time // when a removed package was found to be missing
	polls int
	fails int
}

// every is the time between two polls.
const every = 200 * time.Millisecond

func (v *service) follow(ctx context.Context) *follower {
	ctx, stop := context.WithCancel(ctx)
	f := &follower{
		v: v, stop: stop, done: make(chan struct{}), first: map[packageFile]time.Time{},
		last: map[packageFile]time.Time{},
	}
	go func() {
		defer close(f.done)
		for rig.Pause(ctx, every) {
			f.look(ctx)
		}
	}()
	return f
}

func (f *follower) end() { f.stop(); <-f.done }

func (f *follower) look(ctx context.Context) {
	got, err := f.v.packages(ctx, time.Time{})
	at := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.polls++
	if err != nil {
		f.fails++
		return
	}
	for t := range got {
		_, known := f.first[t]
		if _, left := f.last[t]; !known || left { // it came, or came back
			f.first[t] = at
			delete(f.last, t)
		}
	}
	for t := range f.now {
		if !got[t] {
			f.last[t] = at
		}
	}
	f.now = got
}

// Limits: a new package must be in the report within soon. The wait is longer, so that the delay
// can be measured.
const (
	soon    = 5 * time.Second
	waitFor = 15 * time.Second
)

// settle waits until the report has exactly the expected packages, or waitFor is over.
func (f *follower) settle(ctx context.Context, rec *record, dirs ...string) error {
	end := time.Now().Add(waitFor)
	for {
		f.mu.Lock()
		got := within(f.now, dirs...)
		f.mu.Unlock()
		want := map[packageFile]bool{}
		for t := range rec.there() {
			want[t] = true
		}
		if maps.Equal(got, want) || time.Now().After(end) {
			return nil
		}
		if !rig.Pause(ctx, 100*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// seen returns when a package was first in the report.
func (f *follower) seen(t packageFile) (time.Time, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.first[t]
	return at, ok
}

// left returns when a package was found to be missing.
func (f *follower) left(t packageFile) (time.Time, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.last[t]
	return at, ok && !f.now[t]
}

// kept returns the packages of the last report within some directories.
func (f *follower) kept(dirs ...string) map[packageFile]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return within(f.now, dirs...)
}

// compare compares expected and reported packages, and the times: the packages of a kind, each once.
// It returns their number and the longest delay.
func (f *follower) compare(r *row, came map[packageFile]event) (packages int, worst time.Duration) {
	each := map[packageFile]bool{}
	all := map[packageFile]bool{}
	for t := range came {
		all[t] = true
	}
	bad := map[packageFile]bool{}
	for _, t := range things(all) {
		p := t
		p.path = ""
		each[p] = true
		at, ok := f.seen(t)
		took := max(at.Sub(came[t].at), 0)
		switch {
		case !ok:
			bad[p] = true
			r.Differences = append(r.Differences, fmt.Sprintf("missing: %s, by %s", t, came[t].how))
		case took > soon:
			bad[p] = true
			r.Differences = append(r.Differences,
				fmt.Sprintf("late: %s, by %s: %.1f s", t, came[t].how, took.Seconds()))
		}
		if ok {
			worst = max(worst, took)
		}
	}
	r.All, r.Equal = r.All+len(each), r.Equal+len(each)-len(bad)
	r.figure("worst seconds", worst.Seconds())
	return len(each), worst
}
