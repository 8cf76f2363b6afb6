package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/rig"
)

// What the row of the idle guests is about.
const (
	idleGuests = 20
	idleTime   = 25 * time.Second
	settleTime = 20 * time.Second
)

// The versions of the guest: as it was built, and saved while it ran.
const (
	coldTag      = "v1"
	suspendedTag = "v2"
)

// work is what a guest does before a save that is measured: a state of which nothing
// has changed since the boot would flatter.
const work = `dd if=/dev/urandom of=/dev/shm/work bs=1M count=32
dd if=/dev/urandom of=/var/tmp/work bs=1M count=32
`

// warm starts the guest once: the node pulls the version, and everything is in memory.
func (b *bench) warm(ctx context.Context, s *stage) error {
	st, err := s.start(ctx, coldTag)
	if err != nil {
		return err
	}
	b.Say("first start, with the pull: %s", st)
	return s.end(ctx, st.id)
}

// suspend makes the suspended version, and starts it once.
func (b *bench) suspend(ctx context.Context, s *stage) error {
	st, err := s.start(ctx, coldTag)
	if err != nil {
		return err
	}
	pause, err := s.save(ctx, st.id, suspendedTag, "")
	if err != nil {
		_ = s.end(ctx, st.id) // what is left then, close ends
		return err
	}
	b.Say("saved %s, the guest stood still for %s", suspendedTag, pause)
	if err := s.suspended(ctx, suspendedTag); err != nil {
		return err
	}
	if st, err = s.start(ctx, suspendedTag); err != nil {
		return err
	}
	b.Say("first start of %s: %s", suspendedTag, st.resumed())
	return s.end(ctx, st.id)
}

// pairUp makes the pairs: a cold start and a suspended one, one after the other.
func (b *bench) pairUp(ctx context.Context, s *stage) error {
	for i := range b.pairs {
		if !b.Wants(rowOverhead, rowResume, rowPause) {
			return nil
		}
		if err := b.pair(ctx, s, i); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) pair(ctx context.Context, s *stage, i int) error {
	parts := []func() (start, error){
		func() (start, error) { return b.cold(ctx, s, i) },
		func() (start, error) { return b.resumed(ctx, s) },
	}
	var starts [2]start
	for k := range parts {
		at := (i + k) % 2
		st, err := parts[at]()
		if err != nil {
			return err
		}
		starts[at] = st
	}
	cold, resumed := starts[0], starts[1]
	b.Add(rowOverhead, runner.MS(cold.own()))
	b.addStart(i+1, coldTag, cold)
	if resumed.id == "" {
		b.Say("pair %d: cold %s", i+1, cold)
		return nil
	}
	ratio := float64(resumed.whole) / float64(cold.whole)
	b.Add(rowResume, ratio)
	b.addStart(i+1, suspendedTag, resumed)
	b.Say("pair %d: cold %s; suspended %s; ratio %.2f", i+1, cold, resumed.resumed(), ratio)
	return nil
}

// cold starts v1, and ends it by a save when the pause of saves is measured.
func (b *bench) cold(ctx context.Context, s *stage, i int) (start, error) {
	st, err := s.start(ctx, coldTag)
	if err != nil {
		return st, err
	}
	if !b.Wants(rowPause) {
		return st, s.end(ctx, st.id)
	}
	pause, err := s.save(ctx, st.id, fmt.Sprintf("pair%d", i+1), work)
	if err != nil {
		b.Fail(ctx, err, rowPause)
		b.Say("failed: %v", err)
		return st, s.end(ctx, st.id)
	}
	b.Add(rowPause, runner.MS(pause.longer()))
	b.Say("save %d: the guest stood still for %s", i+1, pause)
	return st, nil
}

// resumed starts the suspended version, when its start is measured.
func (b *bench) resumed(ctx context.Context, s *stage) (start, error) {
	if !b.Wants(rowResume) {
		return start{}, nil
	}
	st, err := s.start(ctx, suspendedTag)
	if err == nil {
		return st, s.end(ctx, st.id)
	}
	b.Fail(ctx, err, rowResume)
	b.Say("failed: %v", err)
	return start{}, nil
}

// idle starts the idle guests together and measures what they cost.
func (b *bench) idle(ctx context.Context, s *stage) error {
	took, err := s.startMany(ctx, suspendedTag, idleGuests)
	if err != nil {
		return err
	}
	b.Say("%d guests of %s Started after %.1f s; waiting %s", idleGuests, suspendedTag, took.Seconds(), settleTime)
	if !rig.Pause(ctx, settleTime) {
		return context.Cause(ctx)
	}
	processes, err := rig.QEMUs(b.Dir)
	if err != nil || len(processes) != idleGuests {
		return errors.Join(err, fmt.Errorf("%d QEMU processes for %d guests", len(processes), idleGuests))
	}
	pids := make([]int, 0, len(processes))
	for _, q := range processes {
		pids = append(pids, q.PID)
	}
	part, err := runner.Share(ctx, idleTime, pids...)
	if err != nil {
		return err
	}
	b.Add(rowIdle, 100*part)
	return s.endAll(ctx)
}
