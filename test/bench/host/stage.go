package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
	"github.com/buildyard/buildyard/test/scantree"
)

// stage is a service that watches the whole host, after a full scan of it and after all was
// compared again with another database of everything.
type stage struct {
	*service
	figures figures
}

// figures are what a service knows and what it used.
type figures struct {
	Entries         int     `json:"entries"` // that the full scan saw
	Packages        int     `json:"packages"`
	Vulnerabilities int     `json:"vulnerabilities"`
	InventoryMB     float64 `json:"catalogue_mb"`
	ScanSeconds     float64 `json:"scan_seconds"`
	ScanMB          float64 `json:"scan_mb"` // most resident while it ran
	CompareSeconds  float64 `json:"judge_seconds"`
	CompareMB       float64 `json:"judge_mb"` // most resident while everything was compared
	Rest            memory  `json:"rest"`
	IdleTicks       *int64  `json:"idle_ticks,omitempty"` // in idleTime
}

func (s *stage) end() error {
	if s == nil {
		return nil
	}
	return s.service.end()
}

// ready returns the stage that the rows are about. The tree for measuring is on this host.
func (b *bench) ready(ctx context.Context) (*stage, error) {
	if b.stage != nil {
		return b.stage, nil
	}
	if _, err := scantree.Make(ctx, b.Say); err != nil {
		return nil, err
	}
	var err error
	b.stage, err = b.setUp(ctx, "stage")
	if err != nil {
		return nil, err
	}
	b.figures = &b.stage.figures
	return b.stage, nil
}

// lateName is the package that comes when the newer database is there.
const lateName = "buildyard-bench-late"

// setUp makes a stage.
func (b *bench) setUp(ctx context.Context, name string) (_ *stage, err error) {
	if err := b.feed(ctx); err != nil {
		return nil, err
	}
	s := &stage{}
	if s.service, err = b.serve(ctx, name, b.databases.first); err == nil {
		err = s.fill(ctx, b)
	}
	if err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

// fill scans and compares.
func (s *stage) fill(ctx context.Context, b *bench) error {
	b.Say("a full scan of the whole host")
	took, last, err := s.scan(ctx, "", url.Values{"real_time": {"true"}})
	if err != nil {
		return err
	}
	f := &s.figures
	f.Entries, f.ScanSeconds = last.Files, took.Seconds()
	m, err := memoryOf(s.process.PID())
	if err != nil {
		return err
	}
	f.ScanMB = m.Peak
	b.Say("%d entries in %.1f s: %d packages; comparing all with another database", f.Entries, f.ScanSeconds,
		last.Packages)
	if err := s.calm(ctx); err != nil {
		return err
	}
	if err := s.compare(ctx, b); err != nil {
		return err
	}
	st, err := s.status(ctx)
	if err != nil {
		return err
	}
	f.Packages, f.Vulnerabilities, f.InventoryMB = st.Counts.Packages, st.Counts.Vulnerabilities,
		float64(st.Counts.Bytes)/(1<<20)
	if want := "fanotify"; len(st.Mounts) == 0 || !watched(st.Mounts, want) {
		return fmt.Errorf("the root is not watched by %s", want)
	}
	b.Say(
		"%.1f MB at most: %d packages, %d vulnerabilities, a catalogue of %.1f MB; compared anew in %.1f s (%.1f "+
			"MB at most)",
		f.ScanMB, f.Packages, f.Vulnerabilities, f.InventoryMB, f.CompareSeconds, f.CompareMB)
	return nil
}

func watched(mounts []api.HostMount, method string) bool {
	for _, m := range mounts {
		if m.Path == "/" {
			return m.Method == method
		}
	}
	return false
}

// calm waits until nothing is to be done.
func (s *stage) calm(ctx context.Context) error {
	return s.await(ctx, 2*time.Minute, func(st api.HostStatus) bool {
		return st.State == api.HostRealTime && st.Pending == 0 && !st.Analyzing
	})
}

// compare puts the newer database in place. The next package that comes makes the service
// see it, and compare everything.
func (s *stage) compare(ctx context.Context, b *bench) error {
	st, err := s.status(ctx)
	if err != nil {
		return err
	}
	if st.Database.Compared == nil {
		return fmt.Errorf("nothing was compared with the first database: %s", st.Database.Error)
	}
	old := *st.Database.Compared
	if err := put(b.databases.second, s.database); err != nil {
		return err
	}
	if err := forget(s.process.PID()); err != nil {
		return err
	}
	began := time.Now()
	if err := writePackage(filepath.Join(s.dir, "node_modules", lateName), lateName); err != nil {
		return err
	}
	err = s.await(ctx, 10*time.Minute, func(st api.HostStatus) bool {
		return st.Database.Compared != nil && st.Database.Compared.After(old) && !st.Analyzing && st.Pending == 0
	})
	if err != nil {
		return fmt.Errorf("comparing with the newer database: %w", err)
	}
	s.figures.CompareSeconds = time.Since(began).Seconds()
	m, err := memoryOf(s.process.PID())
	s.figures.CompareMB = m.Peak
	return err
}

// writePackage writes a package as npm unpacks one.
func writePackage(dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "index.js"), []byte("module.exports = 1;\n"), 0o600); err != nil {
		return err
	}
	raw, err := json.Marshal(map[string]string{"name": name, "version": "1.0.0", "license": "MIT", "main": "index.js"})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "package.json"), raw, 0o600)
}

// settle is how long a service is left alone before it counts as idle.
const settle = 10 * time.Second

func pause(ctx context.Context, d time.Duration) error {
	if !rig.Pause(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}
