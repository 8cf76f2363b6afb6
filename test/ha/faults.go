package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// faultKind is one way in which a part of the cloud breaks.
type faultKind struct {
	name    string
	inflict func(ctx context.Context, m *member) error
	heal    func(ctx context.Context, m *member) error
}

// The faults of every part.
var faultKinds = []faultKind{
	{"kill", func(_ context.Context, m *member) error { return m.Kill() }, start},
	{
		"freeze", func(_ context.Context, m *member) error { return syscall.Kill(m.PID(), syscall.SIGSTOP) },
		func(_ context.Context, m *member) error { return syscall.Kill(m.PID(), syscall.SIGCONT) },
	},
	{
		"partition", func(ctx context.Context, m *member) error { return m.Disconnect(ctx) },
		func(ctx context.Context, m *member) error { return m.Connect(ctx) },
	},
	{"full disk", func(_ context.Context, m *member) error { return fillDisk(m.dir) }, emptyDisk},
	{"clock jump", jumpClock, resetClock},
}

// start starts a program that has ended.
func start(_ context.Context, m *member) error {
	if m.Running() {
		return nil
	}
	return m.Start()
}

// fillerFile is what fills a disk.
const fillerFile = "filler"

// fillDisk fills a machine's disk to the last byte.
func fillDisk(dir string) (err error) {
	file, err := os.Create(filepath.Join(dir, fillerFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for size := 1 << 20; size > 0; size /= 2 {
		for {
			if _, err := file.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
				break
			} else if err != nil && !errors.Is(err, io.ErrShortWrite) {
				return err
			}
		}
	}
	return nil
}

// emptyDisk frees the disk again. A program that ended because of it is started, as its service would be.
func emptyDisk(ctx context.Context, m *member) error {
	return errors.Join(os.Remove(filepath.Join(m.dir, fillerFile)), start(ctx, m))
}

// clockJumps are how far clocks jump, in both directions: a wrong time zone, and a wrong day.
var clockJumps = []time.Duration{time.Hour, 36 * time.Hour}

func jumpClock(_ context.Context, m *member) error {
	jump := clockJumps[rand.IntN(len(clockJumps))] //nolint:gosec // a test
	if rand.IntN(2) == 0 {                         //nolint:gosec // a test
		jump = -jump
	}
	return setClock(m, jump)
}

// resetClock sets the clock back, and starts a program that ended.
func resetClock(ctx context.Context, m *member) error {
	return errors.Join(setClock(m, 0), start(ctx, m))
}

func setClock(m *member, offset time.Duration) error {
	path := filepath.Join(m.dir, clockFileName)
	text := strconv.Itoa(int(offset / time.Second))
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// part is a kind of machine that breaks.
type part struct {
	name    string
	members func(c *cloud) []*member
	// parts of messages with which its faults may end an instance in Error: its start failed
	errors []string
}

var parts = []part{
	{"controller", func(c *cloud) []*member { return c.control }, nil},
	{"etcd member", func(c *cloud) []*member { return c.etcd }, nil},
	{"registry", func(c *cloud) []*member { return []*member{c.registry} }, []string{"pull", "registry"}},
	{"node", func(c *cloud) []*member { return c.nodes }, []string{"no space left", "disk"}},
}

// strikeOptions bound one strike.
type strikeOptions struct {
	shortest, longest time.Duration // that a part stays broken
	recovery          time.Duration // until calls are acknowledged again
	progress          int           // acknowledged calls between two strikes
}

var usualStrikes = strikeOptions{
	shortest: 500 * time.Millisecond, longest: 5 * time.Second, recovery: 90 * time.Second, progress: 20,
}

// strike breaks a member, mends it, and waits for the cloud to work.
func (d *drill) strike(ctx context.Context, f faultKind, m *member) error {
	if err := f.inflict(ctx, m); err != nil {
		return fmt.Errorf("%s of %s: %w", f.name, m.Name, err)
	}
	o := d.strikes
	rig.Pause(ctx, o.shortest+time.Duration(d.rng.Int64N(int64(o.longest-o.shortest))))
	if err := f.heal(ctx, m); err != nil {
		return fmt.Errorf("heal %s after %s: %w", m.Name, f.name, err)
	}
	if err := d.cloud.restart(ctx); err != nil {
		return fmt.Errorf("after %s of %s: %w", f.name, m.Name, err)
	}
	if err := d.load.AwaitProgress(ctx, o.progress, o.recovery); err != nil {
		return fmt.Errorf("after %s of %s: %w", f.name, m.Name, err)
	}
	return nil
}
