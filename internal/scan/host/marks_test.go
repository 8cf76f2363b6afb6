package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// mark marks a job in a directory of the tree.
func (b *bench) mark(job, dir string) {
	b.t.Helper()
	if _, err := b.Mark(b.t.Context(), job, filepath.Join(b.dir, dir)); err != nil {
		b.t.Fatal(err)
	}
}

// since returns the packages and the findings since a mark, as a job would see them at its end.
func (b *bench) since(job string) (packages, findings []string) {
	b.t.Helper()
	if err := b.Settle(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	r, err := b.ReportSinceMark(job, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	for p, err := range r.Packages() {
		if err != nil {
			b.t.Fatal(err)
		}
		line := p.Name + " " + p.Version
		for _, l := range p.Locations {
			line += " " + strings.TrimPrefix(l, b.dir+"/")
		}
		packages = append(packages, line)
	}
	for f, err := range r.Findings() {
		if err != nil {
			b.t.Fatal(err)
		}
		findings = append(findings, f.Package.Name+" "+f.Vulnerability.ID)
	}
	slices.Sort(packages)
	return packages, findings
}

func (b *bench) expectSince(job string, packages, findings []string) {
	b.t.Helper()
	if got, found := b.since(job); !slices.Equal(got, packages) || !slices.Equal(found, findings) {
		b.t.Errorf("%s brought %q with %q, want %q with %q", job, got, found, packages, findings)
	}
}

// TestReportSinceMark: each of several jobs at the same time has what came since it began, also after a restart and
// where another file had the package before.
func TestReportSinceMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vuln.db")
	database(t, path, time.Unix(1000, 0), "a", "b", "old")
	b := newBench(t, func(o *Options) { o.Database = Database{Path: path, Manual: true} })
	npm := func(dir, name, version string) {
		b.write(dir+"/node_modules/"+name+"/package.json", fmt.Sprintf(`{"name":%q,"version":%q}`, name, version))
	}
	npm("one", "old", "1.0.0")
	npm("two", "gone", "1.0.0")
	b.start()
	npm("one", "before", "1.0.0") // the mark waits for it
	b.mark("first", "")
	b.expectSince("first", nil, nil)

	npm("one", "a", "1.0.0")
	b.mark("second", "")
	b.mark("third", "two")
	npm("two", "a", "1.0.0")
	npm("two", "old", "1.0.0")
	npm("one", "b", "1.0.0")
	b.remove("two/node_modules/gone")
	firstSees := []string{
		"a 1.0.0 one/node_modules/a/package.json two/node_modules/a/package.json",
		"b 1.0.0 one/node_modules/b/package.json", "old 1.0.0 two/node_modules/old/package.json",
	}
	secondSees := []string{
		"a 1.0.0 two/node_modules/a/package.json", "b 1.0.0 one/node_modules/b/package.json",
		"old 1.0.0 two/node_modules/old/package.json",
	}
	thirdSees := []string{
		"a 1.0.0 two/node_modules/a/package.json", "old 1.0.0 two/node_modules/old/package.json",
	}
	check := func() {
		t.Helper()
		b.expectSince("first", firstSees, []string{"old CVE-2026-old", "a CVE-2026-a", "b CVE-2026-b"})
		b.expectSince("second", secondSees, []string{"old CVE-2026-old", "a CVE-2026-a", "b CVE-2026-b"})
		b.expectSince("third", thirdSees, []string{"old CVE-2026-old", "a CVE-2026-a"})
	}
	check()
	b.restart()
	check()
	b.remove("two/node_modules/a")
	b.remove("one/node_modules/b")
	b.expectSince("third", thirdSees[1:], []string{"old CVE-2026-old"})
	b.expectSince("second", thirdSees[1:], []string{"old CVE-2026-old"})
}

// TestReportSinceMarkOfMinScore: packages without a finding of the score are left out.
func TestReportSinceMarkOfMinScore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vuln.db")
	database(t, path, time.Unix(1000, 0), "a")
	b := newBench(t, func(o *Options) { o.Database = Database{Path: path, Manual: true} })
	b.start()
	b.mark("job", "")
	b.npm("a", "1.0.0")
	b.npm("safe", "1.0.0")
	if got, _ := b.since("job"); len(got) != 2 {
		t.Errorf("%q", got)
	}
	for score, want := range map[float64]int{7: 1, 8: 0} {
		r, err := b.ReportSinceMark("job", score)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for range r.Packages() {
			n++
		}
		for range r.Findings() {
			n += 10
		}
		if n != 11*want {
			t.Errorf("score %v: %d", score, n)
		}
	}
}

// TestGapOfMark: what may be missing is said.
func TestGapOfMark(t *testing.T) {
	b := newBench(t, nil)
	gap := func(job, want string) {
		t.Helper()
		list := b.Marks()
		at := slices.IndexFunc(list, func(m Mark) bool { return m.Job == job })
		if at < 0 {
			t.Fatalf("%+v", list)
		}
		if got := b.Gap(list[at]); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("gap of %s: %q, want %q", job, got, want)
		}
	}
	const off = "did not run all the time"
	b.mark("idle", "")
	gap("idle", off)
	b.full()
	gap("idle", "")
	b.start()
	b.mark("watched", "")
	gap("watched", "")
	if _, err := b.Mark(t.Context(), "host", ""); err != nil {
		t.Fatal(err)
	}
	gap("host", "restricted to "+b.dir)
	b.restart()
	gap("watched", "")
	b.stopped()
	gap("watched", off)
	b.start() // begins with a full scan
	gap("watched", "")
	b.full()
	b.stopped() // what follows is in no scan
	gap("watched", off)
	gap("idle", off)
	b.restart()
	gap("watched", off)
	b.full()
	gap("watched", "")
}

// TestGapOfUnwatchedDirectory: nothing is noticed in directories that are excluded or not watched, and when the
// inventory is full.
func TestGapOfUnwatchedDirectory(t *testing.T) {
	b := newBench(t, func(o *Options) {
		base := filepath.Dir(filepath.Dir(o.InventoryPath))
		o.Exclude, o.MaxPackages = []string{filepath.Join(base, "tree", "out")}, 2
	})
	for _, dir := range []string{"out/job", "net/job", "net/disk/job", "in"} {
		if err := os.MkdirAll(filepath.Join(b.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.start()
	b.watch.mounts = []Mount{
		{Path: b.dir + "/net", Type: "nfs", Reason: "it is a network file system"},
		{Path: b.dir + "/net/disk", Method: "told"},
	}
	expect := func(dir, want string) {
		t.Helper()
		b.mark(dir+want, dir)
		list := b.Marks()
		if got := b.Gap(list[len(list)-1]); got != want {
			t.Errorf("gap of %s: %q, want %q", dir, got, want)
		}
	}
	expect("out/job", b.dir+"/out is neither scanned nor watched")
	expect("net/job", b.dir+"/net is not watched: it is a network file system")
	expect("net/disk/job", "")
	expect("in", "")
	for _, name := range []string{"a", "b", "c"} {
		b.npm(name, "1.0.0")
		b.settle()
	}
	expect("in", "the inventory is full: packages are missing")
}

// TestBoundsOfMarks: names are checked, marks stay as they are, are limited, and end.
func TestBoundsOfMarks(t *testing.T) {
	b := newBench(t, nil)
	for _, job := range []string{"", strings.Repeat("x", 256), "a\nb", "\xff"} {
		if _, err := b.Mark(t.Context(), job, ""); !errors.Is(err, ErrInvalidMark) {
			t.Errorf("%q: %v", job, err)
		}
	}
	if _, err := b.Mark(t.Context(), "job", filepath.Join(b.dir, "missing")); !errors.Is(err, ErrInvalidPath) {
		t.Errorf("a missing directory: %v", err)
	}
	b.mark("job", "")
	if _, err := b.Mark(t.Context(), "job", ""); !errors.Is(err, ErrMarkExists) {
		t.Errorf("a second mark: %v", err)
	}
	if _, err := b.ReportSinceMark("other", 0); !errors.Is(err, ErrMarkNotFound) {
		t.Errorf("without a mark: %v", err)
	}
	now := wallClock()
	b.Host.mu.Lock()
	defer b.Host.mu.Unlock()
	h := b.Host
	h.saved.Marks = nil
	add := func(n int, at time.Time, path string) error {
		return h.addMarkLocked(Mark{Job: fmt.Sprint(n), Created: at, Path: path})
	}
	for n := range maxMarks {
		if err := add(n, now.Add(time.Duration(n)*time.Second), ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := add(maxMarks, now.Add(minMarkAge-time.Second), ""); !errors.Is(err, ErrTooManyMarks) {
		t.Errorf("a flood: %v", err)
	}
	if err := add(maxMarks, now.Add(minMarkAge), ""); err != nil || len(h.saved.Marks) != maxMarks ||
		h.saved.Marks[0].Job != "1" {
		t.Errorf("%v, %d marks, the first is %s", err, len(h.saved.Marks), h.saved.Marks[0].Job)
	}
	if err := add(0, now.Add(maxMarkAge+2*time.Hour), ""); err != nil || len(h.saved.Marks) != 1 {
		t.Errorf("after a week: %v, %d marks", err, len(h.saved.Marks))
	}
	h.saved.Marks = nil
	long := "/" + strings.Repeat("x", maxMarkedBytes/3)
	for n := range 3 {
		_ = add(n, now, long)
	}
	if len(h.saved.Marks) != 2 {
		t.Errorf("%d marks with long paths", len(h.saved.Marks))
	}
}

// TestMarksOfAnotherInventory: a new inventory has other positions, so that the marks of the old one end.
func TestMarksOfAnotherInventory(t *testing.T) {
	for name, replace := range map[string]func(path string) error{
		"damaged": func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("damage", 10000)), 0o600)
		},
		"removed": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			b.npm("a", "1.0.0")
			b.start()
			b.mark("job", "")
			b.restart()
			if list := b.Marks(); len(list) != 1 {
				t.Errorf("after a restart: %+v", list)
			}
			b.end()
			if err := replace(b.options.InventoryPath); err != nil {
				t.Fatal(err)
			}
			b.open()
			if list := b.Marks(); len(list) != 0 {
				t.Errorf("%+v", list)
			}
		})
	}
}
