package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/rig"
)

const rowStorm = "storm"

const (
	stormDirs  = 10_000
	stormTurns = 2
)

// stormNames are the files of each directory of a storm: the first half may hold packages.
var stormNames = []string{
	"package.json", "go.mod", "Cargo.lock", "requirements.txt", "x.gemspec",
	"index.js", "README.md", "LICENSE", "main.c", "main.h",
}

var stormPart = part{
	rows: func(int) []row.Row {
		return []row.Row{{
			Name: rowStorm, What: "part of a core in a storm of files", Unit: "%", Target: 25, Digits: 1, Need: 1,
			How: fmt.Sprintf(
				"%d files in %d folders are created and removed, %d times, as fast as one process can; half of them "+
					"have names that hold packages; "+
					"processor time / time from the beginning until everything is caught up with and a package that "+
					"came "+
					"last is in the report", stormDirs*len(stormNames), stormDirs, stormTurns),
		}}
	},
	measure: stormRows,
}

func stormRows(ctx context.Context, b *bench) (err error) {
	s, err := b.ready(ctx)
	if err != nil {
		return err
	}
	top := filepath.Join(b.Dir, "storm")
	defer func() { err = errors.Join(err, os.RemoveAll(top)) }()
	if err := errors.Join(os.Mkdir(top, 0o755), s.calm(ctx), pause(ctx, settle), forget(s.process.PID())); err != nil {
		return err
	}
	u, storm, most, err := b.storm(ctx, s, top)
	if err != nil {
		return err
	}
	m, err := memoryOf(s.process.PID())
	if err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	after, err := memoryOf(s.process.PID())
	if err != nil {
		return err
	}
	lost, err := s.overflows()
	b.Add(rowStorm, 100*u.share())
	b.Note(rowStorm,
		"%s; caught up %.1f s after the storm; %.1f MB resident at most, %.1f MB of no file; %.1f and %.1f "+
			"MB afterwards; news lost %d times",
		u, (u.wall - storm).Seconds(), m.Peak, most, after.Resident, after.Anon, lost)
	return err
}

// storm makes one and waits until it is caught up with. It gives how long the storm itself
// took, and the most memory of no file.
func (b *bench) storm(
	ctx context.Context, s *stage, top string,
) (u spent, storm time.Duration, most float64, err error) {
	look, err := open(s.process.PID())
	if err != nil {
		return u, 0, 0, err
	}
	watched, stop := context.WithCancel(ctx)
	peak := make(chan float64, 1)
	go func() { peak <- s.mostAnon(watched) }()
	began := time.Now()
	for turn := range stormTurns {
		if err = raise(ctx, top); err != nil {
			break
		}
		b.Say("storm %d: %.1f s", turn+1, time.Since(began).Seconds())
	}
	storm = time.Since(began)
	if err == nil {
		err = s.catchesUp(ctx, filepath.Join(top, "last"))
	}
	stop()
	most = <-peak
	if err != nil {
		return u, storm, most, err
	}
	u, err = look.close()
	b.Say("caught up after %.1f s: %s", u.wall.Seconds(), u)
	return u, storm, most, err
}

// catchesUp brings a package and waits until it is in the report, and nothing else waits.
func (s *stage) catchesUp(ctx context.Context, project string) error {
	const name = "buildyard-bench-after-storm"
	began := time.Now()
	if err := install(project, name); err != nil {
		return err
	}
	if err := s.appears(ctx, name, began); err != nil {
		return err
	}
	return s.calm(ctx)
}

// raise creates and removes the files.
func raise(ctx context.Context, top string) error {
	dir := func(i int) string { return filepath.Join(top, fmt.Sprint(i/100), fmt.Sprint(i%100)) }
	for i := range stormDirs {
		if err := os.MkdirAll(dir(i), 0o755); err != nil {
			return err
		}
		text := fmt.Appendf(nil, "{\"name\": \"storm-%d\", \"version\": \"1.0.0\"}\n", i)
		for _, name := range stormNames {
			if err := os.WriteFile(filepath.Join(dir(i), name), text, 0o600); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	for i := range stormDirs {
		if err := os.RemoveAll(dir(i)); err != nil {
			return err
		}
	}
	return nil
}

// mostAnon looks for the most memory of no file until ctx ends.
func (s *stage) mostAnon(ctx context.Context) (most float64) {
	for rig.Pause(ctx, 2*glance) {
		if m, err := memoryOf(s.process.PID()); err == nil {
			most = max(most, m.Anon)
		}
	}
	return most
}

// overflows counts how often the kernel could not remember all that happened.
func (s *service) overflows() (int, error) {
	raw, err := os.ReadFile(s.log())
	return strings.Count(string(raw), "The fanotify queue overflowed"), err
}
