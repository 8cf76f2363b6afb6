package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/rig"
)

// The time of boot of the guests of pair i. The steps are not a part of any interval between polls.
const (
	firstBoot = 300 * time.Millisecond
	bootStep  = 130 * time.Millisecond
	bootRange = 1000 * time.Millisecond
)

func bootTime(i int) time.Duration { return firstBoot + time.Duration(i)*bootStep%bootRange }

// warmUp starts each image once, so that the node has its version.
func (b *bench) warmUp(ctx context.Context, c *cloud) error {
	for _, image := range []string{smallImage, largeImage} {
		took, err := c.start(ctx, image)
		if err != nil {
			return err
		}
		b.Say("first start of %s, with the pull: %.0f ms", image, runner.MS(took))
	}
	return nil
}

// operation is one of two that are compared.
type operation func() (time.Duration, error)

// inTurns runs two operations one after the other; the order changes with each round.
func inTurns(round int, first, second operation) (a, b time.Duration, err error) {
	if round%2 == 1 {
		b, a, err = inTurns(round-1, second, first)
		return a, b, err
	}
	if a, err = first(); err != nil {
		return a, b, err
	}
	b, err = second()
	return a, b, err
}

// pairs collects the times of two operations in milliseconds.
type pairs struct{ first, second []float64 }

func (p *pairs) add(first, second time.Duration) {
	p.first, p.second = append(p.first, runner.MS(first)), append(p.second, runner.MS(second))
}

// String returns both medians.
func (p *pairs) String() string {
	return fmt.Sprintf("p50 %.1f ms and %.1f ms", row.Median(p.first), row.Median(p.second))
}

// measureStarts compares starts of instances with starts by tart alone.
func (b *bench) measureStarts(ctx context.Context, c *cloud) error {
	var all pairs
	for i := range b.rounds {
		delay := strconv.FormatFloat(bootTime(i).Seconds(), 'f', 3, 64)
		for _, home := range []string{c.home, b.mac.home} {
			if err := setKnob(home, "boot-delay", delay); err != nil {
				return err
			}
		}
		ours, alone, err := inTurns(i,
			func() (time.Duration, error) { return c.start(ctx, smallImage) },
			func() (time.Duration, error) { return b.mac.startAlone(ctx, "alone-"+strconv.Itoa(i)) })
		if err != nil {
			return err
		}
		all.add(ours, alone)
		b.Add(rowStart, runner.MS(ours-alone))
		b.Note(rowStart, "%s by tart alone", &all)
	}
	b.Say("starts: %s by tart alone", &all)
	return setKnob(c.home, "boot-delay", "0")
}

// measureSizes compares starts of the two images. A start varies by half of its time, so there are twice as many
// pairs as in other rows.
func (b *bench) measureSizes(ctx context.Context, c *cloud) error {
	var all pairs
	for i := range 2 * b.rounds {
		large, small, err := inTurns(i,
			func() (time.Duration, error) { return b.startSettled(ctx, c, largeImage) },
			func() (time.Duration, error) { return b.startSettled(ctx, c, smallImage) })
		if err != nil {
			return err
		}
		all.add(large, small)
		b.Add(rowSize, float64(large)/float64(small))
		b.Note(rowSize, "%s", &all)
	}
	b.Say("starts by size: %s", &all)
	return nil
}

// startSettled starts an instance of an image after everything that the end of the one before it changed in the
// file system is on stable storage.
func (b *bench) startSettled(ctx context.Context, c *cloud, image string) (time.Duration, error) {
	if err := (&volume{b.mac.dir}).settle(ctx); err != nil {
		return 0, err
	}
	return c.start(ctx, image)
}

// startAlone makes a VM, starts it by tart's commands and returns the time until its guest runs commands.
func (m *fakeMac) startAlone(ctx context.Context, name string) (took time.Duration, err error) {
	if err := m.tart(ctx, "clone", smallImage, name); err != nil {
		return 0, err
	}
	began := time.Now()
	run := m.command(ctx, "run", "--no-graphics", "--no-audio", "--no-clipboard", "--vnc-experimental", name)
	if err := run.Start(); err != nil {
		return 0, err
	}
	err = m.awaitGuest(ctx, name)
	took = time.Since(began)

	ending := context.WithoutCancel(ctx)
	err = errors.Join(err, m.tart(ending, "stop", "--timeout", "10", name))
	if err != nil {
		err = errors.Join(err, run.Process.Kill())
	}
	return took, errors.Join(err, run.Wait(), m.tart(ending, "delete", name))
}

// awaitGuest waits until the guest of a VM runs commands.
func (m *fakeMac) awaitGuest(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := m.command(ctx, "exec", "-i", name, "/usr/bin/true").Run()
		if exit := new(exec.ExitError); !errors.As(err, &exit) {
			return err
		}
		if !rig.Pause(ctx, look) {
			return context.Cause(ctx)
		}
	}
}
