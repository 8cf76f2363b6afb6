package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

const (
	stormFiles = 100_000
	stormTimes = 2
	stormRSS   = 160 << 20 // maximum memory of the service, in bytes
)

// storm makes and removes very many files, and installs packages in between.
func storm(ctx context.Context, s *stage) error {
	v, err := s.begin(ctx, "storm", settings{database: s.at("state", "none.db")})
	if err != nil {
		return err
	}
	defer func() { _ = v.End() }()
	s.try("storm", func(r *row) error { return v.storm(ctx, r) })
	return nil
}

func (v *service) storm(ctx context.Context, r *row) error {
	s := v.s
	dir := s.host("storm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if _, err := v.command(ctx, r, 0, "Scan State: Real-Time", "full-scan", "-b"); err != nil {
		return err
	}
	peak := v.peak(ctx)
	used, err := rig.ProcessorTime(v.PID())
	if err != nil {
		return err
	}
	rec := newRecord()
	began := time.Now()
	for k := range stormTimes {
		if err := whirl(ctx, dir, s.files, func(half int) error {
			u := unit{"npm", "in-a-storm", fmt.Sprintf("%d.%d.0", k+1, half)}
			to := filepath.Join(dir, fmt.Sprintf("kept%d-%d", k, half))
			return errors.Join(writeTree(to, u.files()), rec.installed("cp", time.Time{}, u.at(to)))
		}); err != nil {
			return err
		}
	}
	end := time.Now()
	fmt.Fprintf(s.out, "    %d x %d files made and removed in %.1f s\n", stormTimes, s.files, end.Sub(began).Seconds())
	// Packages installed during a storm must be reported soon after it at the latest. The test does
	// not request the report before, which has thousands of packages that come and go.
	f := v.follow(ctx)
	defer f.end()
	in := rec
	rec = newRecord()
	for t := range in.there() {
		if err := rec.installed("cp in a storm", end, t); err != nil {
			return err
		}
	}
	if err := f.settle(ctx, rec, dir); err != nil {
		return err
	}
	n, worst := f.compare(r, rec.there())
	want := map[packageFile]bool{}
	for t := range rec.there() {
		want[t] = true
	}
	differ(r, want, f.kept(dir), "missing", "additional")
	after, err := rig.ProcessorTime(v.PID())
	if err != nil {
		return err
	}
	st, err := v.status(ctx)
	if err != nil {
		return err
	}
	r.check(st.State == api.HostRealTime, "it is %s", st.State)
	most := peak()
	r.check(most > 0 && most <= stormRSS, "it had %d MiB in memory", most>>20)
	r.check(s.files >= stormFiles, "only %d files", s.files)
	r.figure("peak MB", float64(most)/(1<<20))
	r.figure("processor seconds", (after - used).Seconds())
	r.figure("storm seconds", end.Sub(began).Seconds())
	r.figure("worst seconds", worst.Seconds())
	r.Says = fmt.Sprintf(
		"%d x %d files in %.1f s: %d packages in it cataloged %.1f s after it; at most %d MiB in memory, %.1f s of "+
			"processor",
		stormTimes, s.files, end.Sub(began).Seconds(), n, worst.Seconds(), most>>20, (after - used).Seconds())
	return nil
}

// peak begins to measure the memory of the service. The returned function stops that and returns
// the maximum.
func (v *service) peak(ctx context.Context) func() int64 {
	ctx, stop := context.WithCancel(ctx)
	var most int64
	var group errgroup.Group
	group.Go(func() error {
		for rig.Pause(ctx, 50*time.Millisecond) {
			if now, err := rig.Memory(v.PID()); err == nil {
				most = max(most, now)
			}
		}
		return nil
	})
	return func() int64 {
		stop()
		_ = group.Wait() // it cannot fail
		return most
	}
}

// whirl creates files, every fifth with the name of a package file, and removes all. It calls
// the given function half-way each time.
func whirl(ctx context.Context, dir string, files int, during func(half int) error) error {
	const each = 1000 // files of a directory
	top := filepath.Join(dir, "whirl")
	for i := range files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at := i % each
		name := filepath.Join(top, fmt.Sprint(i/each), "node_modules", fmt.Sprint("p", at/5),
			fmt.Sprintf("file%d.js", at%5))
		if at%5 == 0 {
			name = filepath.Join(filepath.Dir(name), "package.json")
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				return err
			}
		}
		text := fmt.Sprintf("{\"name\":\"p%d\",\"version\":\"1.0.%d\"}\n", at, i/each)
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
		if i == files/2 {
			if err := during(0); err != nil {
				return err
			}
		}
	}
	for i := range files / each {
		if err := os.RemoveAll(filepath.Join(top, fmt.Sprint(i))); err != nil {
			return err
		}
		if i == files/each/2 {
			if err := during(1); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(top)
}
