package mirror

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/build"
	"github.com/buildyard/buildyard/internal/scan/vulndb/download"
	"github.com/buildyard/buildyard/internal/scan/vulndb/mirror/upstreamtest"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mirrored is a mirror of imitated sources.
type mirrored struct {
	*upstreamtest.Upstream
	options Options
	now     time.Time
}

func newMirror(t testing.TB) *mirrored {
	t.Helper()
	m := &mirrored{Upstream: upstreamtest.New(t), now: time.Date(2026, 8, 2, 0, 0, 0, 0, time.UTC)}
	m.options = Options{
		Dir: filepath.Join(t.TempDir(), "mirror"), URLs: m.URLs(), Now: func() time.Time { return m.now },
		Client:   &download.Client{FirstDelay: time.Millisecond, StallTimeout: time.Minute},
		nvdPause: time.Millisecond, firstYear: 2022,
	}
	return m
}

// sync synchronizes the named sources, a minute after the last time, and returns the results by source.
func (m *mirrored) sync(t testing.TB, only ...string) map[string]Result {
	t.Helper()
	m.now = m.now.Add(time.Minute)
	o := m.options
	o.Only = only
	list, err := Sync(t.Context(), o)
	check(t, err)
	out := map[string]Result{}
	for _, r := range list {
		out[r.Source] = r
	}
	return out
}

// want fails unless a source has the outcome.
func want(t testing.TB, results map[string]Result, source string, outcome Outcome) {
	t.Helper()
	if r := results[source]; r.Outcome != outcome {
		t.Errorf("%s: %s, %v; want %s", source, r.Outcome, r.Err, outcome)
	}
}

// wantFailed fails unless a source failed with an error that has the text.
func wantFailed(t testing.TB, results map[string]Result, source, text string) {
	t.Helper()
	want(t, results, source, Failed)
	if err := results[source].Err; err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v; want %q", source, err, text)
	}
}

// database builds a database of the mirror.
func (m *mirrored) database(t testing.TB) *vulndb.DB {
	t.Helper()
	s, err := Open(t.Context(), m.options.Dir)
	check(t, err)
	defer s.Close()
	target := filepath.Join(t.TempDir(), "vuln.db")
	o := build.Options{Inputs: s.Files, Target: target, MaxMemory: 4 << 20, Now: s.Changed}
	_, err = build.Build(t.Context(), o)
	check(t, err)
	db, err := vulndb.Open(target)
	check(t, err)
	t.Cleanup(func() { check(t, db.Close()) })
	return db
}

// advisories returns how many advisories the mirror's database has about a package.
func (m *mirrored) advisories(t testing.TB, ecosystem vulndb.Ecosystem, name string) int {
	t.Helper()
	list, err := m.database(t).Advisories(ecosystem, name)
	check(t, err)
	return len(list)
}

// path returns the path of a file of the mirror by its name.
func (m *mirrored) path(t testing.TB, source, name string) string {
	t.Helper()
	manifest, err := Load(t.Context(), m.options.Dir)
	check(t, err)
	f := manifest.Sources[source].file(name)
	if f == nil {
		t.Fatalf("%s is not in the mirror", name)
	}
	return filepath.Join(m.options.Dir, filepath.FromSlash(f.Path))
}

// childVariable is set in the process that TestKilled kills: the URL of the sources.
const childVariable = "BUILDYARD_TEST_SYNC"

// TestMain runs a synchronization instead of tests in the process of TestKilled.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		_, err := Sync(context.Background(), Options{
			Dir: dir, Only: []string{"osv/npm"}, URLs: map[string]string{"osv": os.Getenv(childVariable + "_URL")},
		})
		if errors.Is(err, errLocked) {
			os.Exit(3)
		}
		if err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
