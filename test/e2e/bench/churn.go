package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/rig"
)

// callers are how many change instances at the same time, at most.
const callers = 8

// churn ends the oldest instance and starts another one, again and again, until the context ends:
// each of the two is a change, however many states it leads through.
func (s *stage) churn(ctx context.Context) error {
	group, alive := errgroup.WithContext(ctx)
	group.SetLimit(callers)
	tick := time.NewTicker(2 * time.Second / changes)
	defer tick.Stop()
	for {
		select {
		case <-alive.Done():
			return group.Wait()
		case <-tick.C:
			group.Go(func() error { return s.exchange(context.WithoutCancel(ctx)) })
		}
	}
}

// exchange ends the oldest instance and starts another one.
func (s *stage) exchange(ctx context.Context) error {
	s.mu.Lock()
	oldest := s.ids[0]
	s.ids = s.ids[1:]
	s.mu.Unlock()
	if err := s.api.Terminate(ctx, oldest); err != nil {
		return err
	}
	ids, err := s.api.Start(ctx, client.StartRequest{TemplateID: s.template, Tag: "v1", Count: 1, ExternalID: job})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, ids...)
	return err
}

// steady measures something while instances change, and fails where they did not as often as they
// should, or where there were not as many.
func (s *stage) steady(ctx context.Context, measure func(context.Context, *stage) error) error {
	inner, stop := context.WithCancel(ctx)
	defer stop()
	changed := make(chan error, 1)
	go func() {
		defer stop()
		changed <- s.churn(inner)
	}()
	err := s.during(inner, measure)
	stop()
	return errors.Join(err, <-changed)
}

func (s *stage) during(ctx context.Context, measure func(context.Context, *stage) error) error {
	if !rig.Pause(ctx, settle) {
		return context.Cause(ctx)
	}
	before, err := s.api.Stats(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := measure(ctx, s); err != nil {
		return err
	}
	after, err := s.api.Stats(ctx)
	if err != nil {
		return err
	}
	return enough(before, after, time.Since(began))
}

// enough reports whether a cloud was as large, and changed as often, as the rows state.
func enough(before, after api.ControllerStats, over time.Duration) error {
	n := after.StartsLastHour - before.StartsLastHour + after.TerminationsLastHour - before.TerminationsLastHour
	if rate := float64(n) / over.Seconds(); rate < leastShare*changes {
		return fmt.Errorf("there were %.0f changes a second", rate)
	}
	for _, stats := range []api.ControllerStats{before, after} {
		if running := stats.Instances["Started"]; running < leastShare*instances ||
			stats.Nodes["Active"] < leastShare*nodes {
			return fmt.Errorf("%d instances ran on %d nodes", running, stats.Nodes["Active"])
		}
	}
	return nil
}
