package inventorydb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

var day = time.Date(2026, 5, 1, 12, 0, 0, 123456789, time.UTC)

func open(t *testing.T, path string) *DB {
	t.Helper()
	l, err := Open(Options{Path: path, MaxPackages: 1000, MaxBytes: 64 << 20, IdleTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func fresh(t *testing.T) *DB { return open(t, filepath.Join(t.TempDir(), "catalogue.db")) }

func npm(name, version string) catalog.Package {
	return catalog.Package{Kind: catalog.NPM, Name: name, Version: version}
}

// put stores files as if they were on disk with this content.
func put(t *testing.T, l *DB, at time.Time, files ...File) Changes {
	t.Helper()
	marks := map[string]uint64{}
	for _, f := range files {
		marks[f.Path] = f.Stamp
	}
	c, err := l.Put(Batch{Files: files, Time: at, CurrentStamp: func(p string) (uint64, bool) {
		return marks[p],
			true
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// shape returns the contents of an inventory as lines.
func shape(t *testing.T, l *DB) []string {
	t.Helper()
	list, next, err := l.Packages(0, time.Time{}, 1000)
	if err != nil || next != 0 {
		t.Fatal(next, err)
	}
	var out []string
	for _, p := range list {
		out = append(out, fmt.Sprintf("%s %s %s %v %v", p.Kind, p.Name, p.Version, p.Locations, p.Licenses))
	}
	slices.Sort(out)
	return out
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPackagesAreThereAsLongAsAFileHasThem(t *testing.T) {
	l := fresh(t)
	ws := npm("ws", "8.0.0")
	licensed := ws
	licensed.Licenses = []string{"MIT"}
	c := put(t, l, day, File{Path: "a/package.json", Stamp: 1, Packages: []catalog.Package{ws}},
		File{Path: "b/package.json", Stamp: 2, Packages: []catalog.Package{licensed, npm("x", "1")}})
	if len(c.NewIDs) != 2 || len(c.Removed) != 0 {
		t.Fatalf("%+v", c)
	}
	expect(t, shape(t, l), "npm ws 8.0.0 [/a/package.json /b/package.json] [MIT]", "npm x 1 [/b/package.json] []")

	c = put(t, l, day.Add(time.Hour),
		File{Path: "b/package.json", Stamp: 3, Packages: []catalog.Package{npm("x", "2")}})
	if len(c.NewIDs) != 1 || len(c.Removed) != 1 || c.Removed[0].Name != "x" || c.Removed[0].Version != "1" {
		t.Fatalf("%+v", c)
	}
	expect(t, shape(t, l), "npm ws 8.0.0 [/a/package.json] []", "npm x 2 [/b/package.json] []")
	list, _, err := l.Packages(0, day.Add(time.Minute), 10)
	if err != nil || len(list) != 1 || !list[0].Created.Equal(day.Add(time.Hour)) || list[0].PURL != "pkg:npm/x@2" ||
		len(list[0].CPEs) == 0 {
		t.Errorf("%+v %v", list, err)
	}

	if c, err = l.Put(Batch{RemovePaths: []string{"a"}}); err != nil || len(c.Removed) != 1 {
		t.Fatalf("%+v %v", c, err)
	}
	expect(t, shape(t, l), "npm x 2 [/b/package.json] []")
	if n := l.Totals(); n.Files != 1 || n.Packages != 1 {
		t.Errorf("%+v", n)
	}
}

func TestSpellingsOfOnePackageAreOne(t *testing.T) {
	l := fresh(t)
	py := func(name string) []catalog.Package {
		return []catalog.Package{{Kind: catalog.Python, Name: name, Version: "1"}}
	}
	put(t, l, day, File{Path: "a", Stamp: 1, Packages: py("Typing_Extensions")},
		File{Path: "b", Stamp: 1, Packages: py("typing-extensions")})
	expect(t, shape(t, l), "python Typing_Extensions 1 [/a /b] []")
	if _, err := l.Put(Batch{RemovePaths: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	expect(t, shape(t, l), "python typing-extensions 1 [/b] []")
}

func TestApplicationsOfOneNameAreOne(t *testing.T) {
	l := fresh(t)
	for _, id := range []string{"org.mozilla.firefox", "com.example.shim", ""} {
		put(t, l, day,
			File{Path: "at " + id, Stamp: 1, Packages: []catalog.Package{
				{Kind: catalog.MacOSApp, Name: "Firefox", Version: "100.0", BundleIDs: []string{id}},
			}})
	}
	ids := func() []string {
		list, _, err := l.Packages(0, time.Time{}, 10)
		if err != nil || len(list) != 1 || !strings.Contains(list[0].CPEs[0], ":mozilla:firefox:") {
			t.Fatalf("%+v %v", list, err)
		}
		return list[0].BundleIDs
	}
	expect(t, ids(), "", "com.example.shim", "org.mozilla.firefox")
	if _, err := l.Put(Batch{RemovePaths: []string{"at com.example.shim"}}); err != nil {
		t.Fatal(err)
	}
	expect(t, ids(), "", "org.mozilla.firefox")
}

func TestSweepDropsWhatIsRemovedAndNothingElse(t *testing.T) {
	l := fresh(t)
	var files []File
	for _, p := range []string{"a/1", "a/2", "a/3", "ab/1", "b/1"} {
		files = append(files, File{Path: p, Stamp: 1, Packages: []catalog.Package{npm(p, "1")}})
	}
	put(t, l, day, files...)
	there := func(p string) bool { return p == "a/3" } // it came after the walk
	if _, err := l.Put(Batch{Prune: []DirPrune{{Dir: "a", Existing: []string{"a/2"}}}, Exists: there}); err != nil {
		t.Fatal(err)
	}
	expect(t, shape(t, l), "npm a/2 1 [/a/2] []", "npm a/3 1 [/a/3] []", "npm ab/1 1 [/ab/1] []", "npm b/1 1 [/b/1] []")
	none := func(string) bool { return false }
	if _, err := l.Put(Batch{Prune: []DirPrune{{Dir: ".", After: "a/2", Until: "ab/1"}}, Exists: none}); err != nil {
		t.Fatal(err)
	}
	expect(t, shape(t, l), "npm a/2 1 [/a/2] []", "npm b/1 1 [/b/1] []")
}

func TestManyAreDroppedInSmallTransactions(t *testing.T) {
	l := fresh(t)
	var files []File
	for i := range 2*maxRemovals + 10 {
		files = append(files, File{Path: fmt.Sprintf("d/%06d", i), Stamp: 1})
	}
	put(t, l, day, files...)
	if _, err := l.Put(Batch{RemovePaths: []string{"d"}}); err != nil || l.Totals().Files != 0 {
		t.Errorf("%v %+v", err, l.Totals())
	}
}

func TestWhatChangedConcurrentlyIsNotKept(t *testing.T) {
	l := fresh(t)
	c, err := l.Put(Batch{
		Files: []File{{Path: "a", Stamp: 1, Packages: []catalog.Package{npm("x", "1")}}}, Time: day,
		CurrentStamp: func(string) (uint64, bool) { return 2, true },
	})
	if err != nil || !slices.Equal(c.Stale, []string{"a"}) || l.Totals().Packages != 0 {
		t.Errorf("%+v %v", c, err)
	}
}

func TestResetForgetsPackagesAndKnowsFiles(t *testing.T) {
	l := fresh(t)
	f := File{Path: "a", Stamp: 1, Packages: []catalog.Package{npm("x", "1")}}
	first := put(t, l, day, f)
	if err := l.Reset(); err != nil {
		t.Fatal(err)
	}
	expect(t, shape(t, l))
	known, err := l.CompareFiles([]FileStamp{{"a", 1}, {"a", 2}, {"b", 1}})
	if err != nil || !slices.Equal(known, []FileStatus{KnownBeforeReset, Changed, Unknown}) {
		t.Errorf("%v %v", known, err)
	}
	second := put(t, l, day, f)
	if len(second.NewIDs) != 1 || second.NewIDs[0] <= first.NewIDs[0] {
		t.Errorf("%v after %v", second.NewIDs, first.NewIDs)
	}
	if known, _ := l.CompareFiles([]FileStamp{{"a", 1}}); known[0] != Unchanged {
		t.Errorf("%v", known)
	}
}

func finding(id string, score float64) match.Finding {
	return match.Finding{
		Vulnerability: vulndb.Vulnerability{ID: id, Score: vulndb.Score{
			Base: score, Severity: vulndb.High, Version: "3.1",
		}, URL: "https://x.test", Related: []string{"GHSA-1"}},
		CPE: "cpe:2.3:a:x:x:1:*:*:*:*:*:*:*", Version: "1", Constraint: "< 2", Type: match.MatchTypeSemantic,
		Source: vulndb.GHSA, Advisory: "GHSA-1", Fixed: []string{"2"},
	}
}

func TestFindingsKeepTheirDate(t *testing.T) {
	l := fresh(t)
	put(t, l, day, File{Path: "a", Stamp: 1, Packages: []catalog.Package{npm("x", "1")}})
	list, err := l.AwaitingMatch(10)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	judge := func(at time.Time, f ...match.Finding) []Finding {
		t.Helper()
		added, err := l.SaveMatchResults([]MatchResult{{Package: list[0], Findings: f}}, at)
		if err != nil {
			t.Fatal(err)
		}
		return added
	}
	if added := judge(day, finding("CVE-1", 5)); len(added) != 1 {
		t.Errorf("%v", added)
	}
	if left, _ := l.AwaitingMatch(10); len(left) != 0 {
		t.Errorf("%v waits", left)
	}
	later := day.Add(time.Hour)
	if added := judge(later, finding("CVE-1", 9), finding("CVE-2", 4)); len(added) != 1 ||
		added[0].Vulnerability.ID != "CVE-2" {
		t.Errorf("%v", added)
	}
	all, _, _, err := l.Findings(FindingCursor{}, time.Time{}, 10)
	if err != nil || len(all) != 2 || !all[0].FoundAt.Equal(day) || all[0].Vulnerability.Score.Base != 9 ||
		all[0].Package.Locations[0] != "/a" {
		t.Errorf("%+v %v", all, err)
	}
	if since, _, _, _ := l.Findings(FindingCursor{}, later, 10); len(since) != 1 {
		t.Errorf("%v", since)
	}
	judge(later)
	if n := l.Totals(); n.Findings != 0 {
		t.Errorf("%+v", n)
	}
}

// A package that changed while it was matched still waits.
func TestAStaleVerdictDoesNotEndTheWait(t *testing.T) {
	l := fresh(t)
	put(t, l, day, File{Path: "a", Stamp: 1, Packages: []catalog.Package{npm("x", "1")}})
	list, _ := l.AwaitingMatch(10)
	put(t, l, day, File{Path: "b", Stamp: 1, Packages: []catalog.Package{npm("x", "1")}})
	if _, err := l.SaveMatchResults([]MatchResult{{Package: list[0]}}, day); err != nil {
		t.Fatal(err)
	}
	if left, _ := l.AwaitingMatch(10); len(left) != 1 {
		t.Errorf("%d wait", len(left))
	}
}

func TestItIsBounded(t *testing.T) {
	l, err := Open(Options{Path: filepath.Join(t.TempDir(), "c.db"), MaxPackages: 2, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range 5 {
		put(t, l, day, File{Path: fmt.Sprint(i), Stamp: 1, Packages: []catalog.Package{npm(fmt.Sprint(i), "1")}})
	}
	if n := l.Totals(); n.Packages != 2 || n.Refused != 3 {
		t.Errorf("%+v", n)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	open(t, path)
	if _, err := Open(Options{Path: path}); !errors.Is(err, ErrInUse) {
		t.Errorf("%v", err)
	}
}

// TestAProcessThatIsEndingIsWaitedFor: a process killed a moment ago still has the lock.
func TestAProcessThatIsEndingIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	old, err := acquireLock(path)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(lockTimeout/4, func() { _ = old.Close() })
	held, err := acquireLock(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = held.Close()
}

func TestItRestsAndWakes(t *testing.T) {
	rested := make(chan struct{}, 10)
	l, err := Open(Options{Path: filepath.Join(t.TempDir(), "c.db"), MaxPackages: 9, MaxBytes: 1 <<
		20, IdleTimeout: time.Millisecond, OnClose: func() { rested <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	<-rested
	l.file.mu.Lock()
	if l.file.db != nil {
		t.Error("the file is still open")
	}
	l.file.mu.Unlock()
	put(t, l, day, File{Path: "a", Stamp: 1, Packages: []catalog.Package{npm("x", "1")}})
	<-rested
	expect(t, shape(t, l), "npm x 1 [/a] []")
}

// Each page is damaged in turn: the inventory reports the damage or returns its old contents, and
// never crashes the process.
func TestDamageIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	l := open(t, path)
	var files []File
	for i := range 400 {
		files = append(files, File{Path: fmt.Sprintf("some/folder/%d/package.json",
			i), Stamp: 1, Packages: []catalog.Package{npm(fmt.Sprint("p", i), "1")}})
	}
	put(t, l, day, files...)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tear := func(name string, bad []byte) {
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(Options{Path: path, MaxPackages: 1000, MaxBytes: 1 << 30})
		if err == nil {
			_, _, err = l.Packages(0, time.Time{}, 1000)
		}
		if err == nil {
			_, err = l.Put(Batch{RemovePaths: []string{"some"}})
		}
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			aside, err := l.Repair(day)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if l.Totals().Packages != 0 {
				t.Errorf("%s: %+v", name, l.Totals())
			}
			os.Remove(aside)
		}
		if err := l.Close(); err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: closing: %v", name, err)
		}
	}
	page := os.Getpagesize()
	for at := 0; at < len(good); at += page {
		bad := bytes.Clone(good)
		for i := at; i < min(at+page, len(bad)); i++ {
			bad[i] ^= 0x5a
		}
		tear(fmt.Sprintf("page %d", at/page), bad)
	}
	for n := 1; n < len(good); n += page / 2 {
		tear(fmt.Sprintf("cut to %d bytes", n), good[:n])
	}
	tear("another file", bytes.Repeat([]byte("no catalogue "), 5000))
}

// The child keeps putting and dropping until it is killed.
func TestKillAtAnyMoment(t *testing.T) {
	if path := os.Getenv("LEDGER_CHILD"); path != "" {
		child(t, path)
	}
	path := filepath.Join(t.TempDir(), "c.db")
	for round := range 12 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillAtAnyMoment$")
		cmd.Env = append(os.Environ(), "LEDGER_CHILD="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wait := make([]byte, 20+17*round) // that many transactions
		if _, err := io.ReadFull(out, wait); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		l, err := Open(Options{Path: path, MaxPackages: 1000, MaxBytes: 64 << 20})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		consistent(t, l)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func child(t *testing.T, path string) {
	l := open(t, path)
	for i := l.Totals().Files; ; i++ {
		name := fmt.Sprintf("f/%d", i%50)
		put(t, l, day,
			File{
				Path: name, Stamp: uint64(i), Packages: []catalog.Package{npm("shared", "1"), npm(fmt.Sprint(i), "1")},
			})
		list, err := l.AwaitingMatch(10)
		if err != nil {
			t.Fatal(err)
		}
		var verdicts []MatchResult
		for _, p := range list {
			verdicts = append(verdicts, MatchResult{Package: p, Findings: []match.Finding{finding("CVE-1", 1)}})
		}
		if _, err := l.SaveMatchResults(verdicts, day); err != nil {
			t.Fatal(err)
		}
		if i%7 == 0 {
			if _, err := l.Put(Batch{RemovePaths: []string{"f/3", "f/9"}}); err != nil {
				t.Fatal(err)
			}
		}
		os.Stdout.WriteString(".")
	}
}

// consistent checks that the tables agree.
func consistent(t *testing.T, l *DB) {
	t.Helper()
	list, next, err := l.Packages(0, time.Time{}, 10_000)
	if err != nil || next != 0 {
		t.Fatal(next, err)
	}
	n := l.Totals()
	if len(list) != n.Packages {
		t.Errorf("%d packages, %d counted", len(list), n.Packages)
	}
	byName, _, err := l.PackagesByName(PackageCursor{}, 10_000)
	if err != nil || len(byName) != len(list) {
		t.Errorf("%d of %d by name: %v", len(byName), len(list), err)
	}
	findings, _, _, err := l.Findings(FindingCursor{}, time.Time{}, 10_000)
	if err != nil || len(findings) != n.Findings {
		t.Errorf("%d findings, %d counted: %v", len(findings), n.Findings, err)
	}
	err = l.view(func(x *tx) error {
		files, places := 0, 0
		_ = x.files.ForEach(func(_, v []byte) error {
			f, err := parseFileRecord(v)
			files++
			places += len(f.packages)
			return err
		})
		held := 0
		_ = x.locations.ForEach(func(_, _ []byte) error { held++; return nil })
		if files != n.Files || places != held {
			return fmt.Errorf("%d files, %d counted; %d places, %d held", files, n.Files, places, held)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRecordsComeBack(t *testing.T) {
	f := finding("CVE-1", 9.8)
	f.Vulnerability.Exploited, f.Vulnerability.ExploitedSince, f.Vulnerability.EPSS, f.Unconfirmed = true, day, 0.5,
		true
	f.DistroPatched = match.DistroPatchedUnknown
	back, err := parseFinding(appendFinding(nil, &f), "CVE-1")
	if err != nil || !reflect.DeepEqual(back, f) {
		t.Errorf("%+v %v", back, err)
	}
	p := catalog.Package{
		Kind: catalog.MacOSApp, Name: "A", Version: "1", BundleIDs: []string{"x.a"}, Replaced: true,
		Licenses: []string{"MIT", "X"},
	}
	got, err := readLocation(appendLocation(nil, &p), packageRecord{kind: p.Kind, name: "A", version: "1"})
	if err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("%+v %v", got, err)
	}
}

// TestRecordsOfEarlierVersions: a record without an origin is that of earlier versions, byte for byte, and
// packages that differ only in their origin have different identities.
func TestRecordsOfEarlierVersions(t *testing.T) {
	old := packageRecord{created: day, kind: catalog.Python, name: "six", version: "1.16"}
	want := appendString(appendString(appendString(appendTime(nil, day), "python"), "six"), "1.16")
	if got := old.append(nil); !bytes.Equal(got, want) || string(old.identity()) != "python\x00six\x001.16" {
		t.Errorf("%q with identity %q, want %q", got, old.identity(), want)
	}
	p := catalog.Package{
		Kind: catalog.Deb, Name: "libc6", Version: "2.36-9", Distribution: "debian:12", Owner: "deb/a@1",
		Source: "glibc", SourceVersion: "2.36-8", Arch: "amd64",
	}
	r := packageRecord{created: day, kind: p.Kind, name: p.Name, version: p.Version, origin: originOf(&p)}
	back, err := parsePackageRecord(r.append(nil))
	if err != nil || back != r {
		t.Errorf("%+v %v", back, err)
	}
	if got, err := readLocation(appendLocation(nil, &p), back); err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("%+v %v", got, err)
	}
	other := r
	for _, field := range []*string{&other.origin.owner, &other.origin.arch, &other.origin.distribution} {
		before := *field
		*field = "x"
		if bytes.Equal(other.identity(), r.identity()) {
			t.Errorf("%+v has the identity of %+v", other, r)
		}
		*field = before
	}
}

func FuzzRecords(f *testing.F) {
	x := finding("CVE-1", 1)
	f.Add(appendFinding(nil, &x))
	p := catalog.Package{Kind: catalog.Python, Name: "A_b", Version: "1", Licenses: []string{"MIT"}}
	f.Add(appendLocation(nil, &p))
	r := packageRecord{created: day, kind: catalog.Gem, name: "a", version: "1"}
	f.Add(r.append(nil))
	r.origin = packageOrigin{"debian:12", "deb/a@1", "s", "2", "amd64"}
	f.Add(r.append(nil))
	file := fileRecord{stamp: 7, resetCount: 2, fileNumber: 3, packages: []uint64{1, 300}}
	f.Add(file.append(nil))
	n := totals{resetCount: 1, matchedWith: DatabaseID{Built: day, Size: 7}}
	f.Add(n.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if f, err := parseFileRecord(b); err == nil {
			again, err := parseFileRecord(f.append(nil))
			if err != nil || !reflect.DeepEqual(again, f) {
				t.Errorf("%+v became %+v: %v", f, again, err)
			}
		}
		if p, err := parsePackageRecord(b); err == nil {
			if again, err := parsePackageRecord(p.append(nil)); err != nil || again != p {
				t.Errorf("%+v became %+v: %v", p, again, err)
			}
		}
		if f, err := parseFinding(b, "x"); err == nil {
			again, err := parseFinding(appendFinding(nil, &f), "x")
			if err != nil || !reflect.DeepEqual(again, f) {
				t.Errorf("%+v became %+v: %v", f, again, err)
			}
		}
		_, _ = readLocation(b, packageRecord{kind: catalog.NPM, name: "a", version: "1"})
		_, _ = readTotals(b)
	})
}

// The packages of one version are found, without those of versions that begin with it.
func TestPackageVersions(t *testing.T) {
	l := fresh(t)
	of := func(version, arch string) catalog.Package {
		return catalog.Package{
			Kind: catalog.Deb, Name: "libc6", Version: version, Arch: arch, Distribution: "debian:12", Source: "glibc",
			SourceVersion: version,
		}
	}
	put(t, l, day, File{Path: "var/lib/dpkg/status", Stamp: 1, Packages: []catalog.Package{
		of("2.36-9", "amd64"), of("2.36-9", "i386"), of("2.36-9+deb12u1", "amd64"),
	}})
	for limit, want := range map[int]int{10: 2, 1: 1} {
		list, err := l.PackageVersions(catalog.Deb, "libc6", "2.36-9", limit)
		if err != nil || len(list) != want || list[0].Source != "glibc" {
			t.Errorf("got %+v, %v", list, err)
		}
	}
}
