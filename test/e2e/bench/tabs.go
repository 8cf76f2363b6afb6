package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/rig"
)

// tabs measures what open tabs take of the server.
func (b *bench) tabs(ctx context.Context, s *stage) error {
	over := min(window, time.Duration(b.seconds)*time.Second/10)
	var all []string
	for _, at := range sights {
		all = append(all, at.path)
	}
	for _, r := range []struct {
		name  string
		paths []string
	}{{rowTabs, all}, {rowTabsOne, []string{"/instances"}}} {
		if !b.Wants(r.name) {
			continue
		}
		before, err := runner.Share(ctx, over, s.cloud.PID())
		if err != nil {
			return err
		}
		o, err := s.withTabs(ctx, r.paths, over)
		if err != nil {
			return err
		}
		after, err := runner.Share(ctx, over, s.cloud.PID())
		if err != nil {
			return err
		}
		without := (before + after) / 2
		note := fmt.Sprintf(
			"%.1f and %.1f %% without tabs, %.1f %% with them; %.1f refreshes a second, one of /instances every %.1f s; "+
				"p95 %.0f ms, %.1f ms of processor each",
			100*before, 100*after, 100*o.share, o.rate, 1/o.fresh, o.slow, 1000*(o.share-without)/o.rate)
		b.Say("%s: %.1f %% (%s)", r.name, 100*(o.share-without), note)
		b.Note(r.name, "%s", note)
		b.Add(r.name, 100*(o.share-without))
		switch {
		case over < window:
			b.Spoil(fmt.Errorf("%s instead of %s: %s", over, window, note), r.name)
		case o.fresh < leastFresh:
			b.Spoil(fmt.Errorf("a tab on /instances was refreshed %.2f times a second: %s", o.fresh, note), r.name)
		}
	}
	return nil
}

// opened is what came of open tabs.
type opened struct {
	share float64 // of one core
	rate  float64 // refreshes a second, of all
	fresh float64 // refreshes a second of a tab on /instances, in the mean
	slow  float64 // ms that 95 of 100 refreshes took at most
}

// leastFresh is the minimum number of refreshes per second of a tab on a page that always changes:
// it is notified once a second, and less often where that takes too much of the server.
const leastFresh = 0.25

// withTabs opens tabs on some pages, in turn, and measures the server while they stay.
func (s *stage) withTabs(ctx context.Context, paths []string, over time.Duration) (o opened, err error) {
	inner, leave := context.WithCancel(ctx)
	defer leave()
	var mu sync.Mutex // guards the fields below
	var took []float64
	busy, ofBusy := 0, 0 // tabs on /instances, and their refreshes
	group, inner := errgroup.WithContext(inner)
	for i := range openTabs {
		v, path := s.visitor(), paths[i%len(paths)]
		defer v.http.CloseIdleConnections()
		live, err := v.enter(inner, path)
		if err != nil {
			return o, errors.Join(err, group.Wait())
		}
		if path == sights[0].path {
			busy++
		}
		group.Go(func() error {
			return v.stay(inner, path, live, func(d time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				if took = append(took, ms(d)); path == sights[0].path {
					ofBusy++
				}
			})
		})
	}
	if !rig.Pause(inner, tabsSettle) {
		return o, group.Wait()
	}
	mu.Lock()
	took, ofBusy = nil, 0
	mu.Unlock()
	o.share, err = runner.Share(inner, over, s.cloud.PID())
	leave()
	if err := errors.Join(err, group.Wait()); err != nil {
		return o, err
	}
	mu.Lock()
	defer mu.Unlock()
	if len(took) == 0 {
		return o, errors.New("no tab was refreshed")
	}
	o.fresh = float64(ofBusy) / float64(busy) / over.Seconds()
	o.rate, o.slow = float64(len(took))/over.Seconds(), row.Quantile(took, 0.95)
	return o, nil
}

// tabsSettle is how long tabs are open before they are measured.
const tabsSettle = 3 * time.Second
