package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// kills is how often the service is killed.
const kills = 5

// kill kills the service while packages come, and starts it again.
func kill(ctx context.Context, s *stage) error {
	v, err := s.begin(ctx, "kill", settings{database: s.at("state", "none.db")})
	if err != nil {
		return err
	}
	defer func() { _ = v.End() }()
	dir := s.host("kill")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	s.try("kill -9 while installing", func(r *row) error {
		if _, err := v.command(ctx, r, 0, "Scan State: Real-Time", "full-scan", "-b"); err != nil {
			return err
		}
		rec := newRecord()
		if err := killing(ctx, s, v, rec, dir); err != nil {
			return err
		}
		began := time.Now()
		if err := v.quiet(ctx); err != nil {
			return err
		}
		st, err := v.status(ctx)
		r.check(err == nil && st.State == api.HostRealTime, "it is %s %v", st.State, err)
		f := v.follow(ctx)
		defer f.end()
		if err := f.settle(ctx, rec, dir); err != nil {
			return err
		}
		want := map[packageFile]bool{}
		for t := range rec.there() {
			want[t] = true
		}
		differ(r, want, f.kept(dir), "missing", "additional")
		r.Says = fmt.Sprintf("%d kills, %d packages, all there %.1f s after the last start", kills, len(want),
			time.Since(began).Seconds())
		return nil
	})
	s.try("and as a full scan", func(r *row) error { return s.asFullScan(ctx, r, v, settings{}, dir) })
	return nil
}

// killing installs, changes and removes while the service is killed and started again.
func killing(ctx context.Context, s *stage, v *service, rec *record, dir string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	enough, installed := make(chan struct{}), make(chan error, 1)
	go func() { installed <- comeAndGo(ctx, s, rec, dir, enough) }()
	for range kills {
		rig.Pause(ctx, time.Duration(300+rand.IntN(1500))*time.Millisecond) //nolint:gosec // any delay will do
		if err := v.Kill(); err != nil {
			return err
		}
		rig.Pause(ctx, time.Duration(rand.IntN(500))*time.Millisecond) //nolint:gosec // no watcher reports this
		if err := v.up(ctx); err != nil {
			return err
		}
	}
	close(enough)
	return <-installed
}

// comeAndGo installs units of all kinds until enough is closed: unpacked, moved, upgraded, removed.
func comeAndGo(ctx context.Context, s *stage, rec *record, dir string, enough <-chan struct{}) error {
	for i := 0; ; i++ {
		base := filepath.Join(dir, fmt.Sprint("round", i))
		if err := s.byWays(ctx, rec, base); err != nil {
			return err
		}
		if err := s.changeWays(ctx, rec, base); err != nil {
			return err
		}
		select {
		case <-enough:
			return nil
		default:
		}
	}
}
