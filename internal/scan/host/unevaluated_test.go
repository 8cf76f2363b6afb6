package host

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/match"
)

// alpine writes an Alpine system with one package.
func (b *bench) alpine(dir, release string) {
	b.write(dir+"/etc/os-release", "ID=alpine\nVERSION_ID="+release+".0\n")
	b.write(dir+"/lib/apk/db/installed", "C:Q1abc=\nP:busybox\nV:1.36.1-r15\nA:x86_64\no:busybox\n\n")
}

func (b *bench) expectMissing(when string, want ...string) {
	b.t.Helper()
	if got := b.Status().NoAdvisories; !slices.Equal(got, want) {
		b.t.Errorf("%s: no advisories: %q, want %q", when, got, want)
	}
}

// TestMissingAdvisoriesAfterRestart: packages that were matched before are not matched again, and the status still has
// what no advisories were found for, until all packages are matched again.
func TestMissingAdvisoriesAfterRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vuln.db")
	database(t, path, time.Unix(1000, 0), "a")
	b := newBench(t, func(o *Options) { o.Database = Database{Path: path, Manual: true} })
	b.start()
	b.alpine("root", "3.20")
	b.settle()
	const missing = "no advisories for alpine:3.20: its packages are not evaluated"
	b.expectMissing("after the match", missing)
	b.restart()
	b.expectMissing("after a restart", missing)
	b.remove("root")
	b.settle()
	b.expectMissing("without the packages", missing)
	database(t, path, time.Unix(2000, 0), "a", "b")
	b.full()
	b.expectMissing("after a match of all packages")
	b.restart()
	b.expectMissing("after that and a restart")
}

// settle waits until all changes are in the inventory, and matched.
func (b *bench) settle() {
	b.t.Helper()
	if err := b.Settle(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// TestUnevaluatedSinceMark: a job learns why its packages were not evaluated, and nothing of packages of others.
func TestUnevaluatedSinceMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vuln.db")
	database(t, path, time.Unix(1000, 0), "a")
	b := newBench(t, func(o *Options) { o.Database = Database{Path: path, Manual: true} })
	b.start()
	for _, dir := range []string{"one", "two", "three"} {
		if err := os.MkdirAll(filepath.Join(b.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		b.mark(dir, dir)
	}
	b.alpine("one", "3.20")
	b.alpine("two", "3.21")
	b.write("three/node_modules/a/package.json", `{"name":"a","version":"1.0.0"}`)
	expect := func(job string, want ...string) {
		t.Helper()
		b.settle()
		list := b.Marks()
		got, err := b.Unevaluated(list[slices.IndexFunc(list, func(m Mark) bool { return m.Job == job })])
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", job, got, err, want)
		}
	}
	expect("one", "no advisories for alpine:3.20: its packages are not evaluated")
	expect("two", "no advisories for alpine:3.21: its packages are not evaluated")
	expect("three")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("three", "no vulnerability database: packages are not matched")
}

// TestMergeMissing: kinds and releases are listed once, whatever the number of their packages.
func TestMergeMissing(t *testing.T) {
	alpine, npm := match.NoAdvisories{Kind: "apk", Distribution: "alpine:3.20"}, match.NoAdvisories{Kind: "npm"}
	one, two := alpine, alpine
	one.Packages, two.Packages = 1, 2
	list := mergeMissing(mergeMissing(nil, []match.NoAdvisories{two}), []match.NoAdvisories{one, npm})
	if !slices.Equal(list, []match.NoAdvisories{alpine, npm}) {
		t.Errorf("%+v", list)
	}
}
