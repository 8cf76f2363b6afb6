package host

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/update"
	"github.com/buildyard/buildyard/internal/scan/vulndb/vulndbtest"
)

func TestTableOfStates(t *testing.T) {
	states := []State{Idle, RealTime, RunningFull}
	triggers := []trigger{triggerFullScan, triggerRealTime, triggerStop, triggerReset, triggerFullScanEnd}
	conditions := []condition{unconditional, withPath, noPath, realTimeFollows, nothingFollows}
	refused := 0
	for _, s := range states {
		for _, tr := range triggers {
			for _, c := range conditions {
				to, ok := nextState(s, tr, c)
				if !ok {
					refused++
					if to != s {
						t.Errorf("%s, %s %s is refused and leads to %s", s, tr, c, to)
					}
				}
				if tr == triggerReset && (to != s || !ok) {
					t.Errorf("a reset leads from %s to %s", s, to)
				}
				if tr == triggerStop && (to != Idle || !ok) {
					t.Errorf("a stop leads from %s to %s", s, to)
				}
			}
		}
	}
	if _, ok := nextState(RunningFull, triggerFullScan, withPath); ok || refused == 0 {
		t.Error("a second full scan is not refused")
	}
}

func TestFullScanFindsEveryKindAndForgetsWhatWent(t *testing.T) {
	b := newBench(t, nil)
	want := b.everyKind("")
	b.full()
	b.expect(want...)
	if s := b.Status(); s.State != Idle || s.LastScan.Path != b.dir || s.Counts.Packages != 9 || s.LastStart.IsZero() {
		t.Errorf("%+v", s)
	}
	b.write("sub/node_modules/ws/package.json", `{"name":"ws","version":"8.0.0"}`)
	b.write("sub/again/node_modules/ws/package.json", `{"name":"ws","version":"8.0.0"}`)
	if _, err := b.FullScan(FullScanOptions{Path: filepath.Join(b.dir, "sub")}); err != nil ||
		b.Wait(t.Context()) != nil {
		t.Fatal(err)
	}
	if l := b.Status().LastScan; l.Packages != 1 || l.Read != 2 { // of what was scanned
		t.Errorf("%+v", l)
	}
	b.remove("sub")
	b.remove("node_modules")
	b.full()
	b.expect(slices.DeleteFunc(want, func(l string) bool { return strings.HasPrefix(l, "npm") })...)
}

func TestCreationTimeStays(t *testing.T) {
	b := newBench(t, nil)
	b.npm("a", "1.0.0")
	b.full()
	first := created(t, b)
	b.npm("b", "1.0.0")
	b.write("again/node_modules/a/package.json", `{"name":"a","version":"1.0.0"}`)
	b.full()
	second := created(t, b)
	if !second["a"].Equal(first["a"]) || !second["b"].After(first["a"]) {
		t.Errorf("%v then %v", first, second)
	}
	if got := b.list(Query{Since: second["b"]}); len(got) != 1 || !strings.HasPrefix(got[0], "npm b") {
		t.Errorf("%q", got)
	}
}

func created(t *testing.T, b *bench) map[string]time.Time {
	t.Helper()
	out := map[string]time.Time{}
	for p, err := range b.Report(Query{}).Packages() {
		if err != nil {
			t.Fatal(err)
		}
		out[p.Name] = p.Created
	}
	return out
}

func TestRefusals(t *testing.T) {
	b := newBench(t, nil)
	file := b.write("x", "")
	for _, p := range []string{file, "relative", filepath.Join(b.dir, "missing")} {
		if s, err := b.FullScan(FullScanOptions{Path: p}); !errors.Is(err, ErrInvalidPath) || s != Idle {
			t.Errorf("%s: %s %v", p, s, err)
		}
	}
	release := busy(b)
	if s, err := b.FullScan(FullScanOptions{}); !errors.Is(err, ErrBusy) || s != RunningFull {
		t.Errorf("%s %v", s, err)
	}
	if s, err := b.StartRealTime(b.dir); !errors.Is(err, ErrBusy) || s != RunningFull {
		t.Errorf("%s %v", s, err)
	}
	release()
}

// busy keeps a full scan running until release is called: it holds the lock of matching.
func busy(b *bench) (release func()) {
	b.t.Helper()
	b.matchMu.Lock()
	if _, err := b.FullScan(FullScanOptions{Path: b.dir}); err != nil {
		b.t.Fatal(err)
	}
	return func() {
		b.matchMu.Unlock()
		if err := b.Wait(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestStopCancelsAFullScan(t *testing.T) {
	const packages = 3 * rangeFiles
	b := newBench(t, nil)
	for i := range packages {
		b.npm(fmt.Sprint("p", i), "1.0.0")
	}
	if _, err := b.FullScan(FullScanOptions{Path: b.dir}); err != nil {
		t.Fatal(err)
	}
	b.stopped()
	if s := b.Status(); s.State != Idle || s.Progress != nil || s.LastScan == nil {
		t.Errorf("%+v", s)
	}
	b.full()
	if got := len(b.list(Query{})); got != packages {
		t.Errorf("%d packages", got)
	}
}

func TestResetDuringAFullScanKeepsScanning(t *testing.T) {
	b := newBench(t, nil)
	b.npm("a", "1.0.0")
	release := busy(b)
	if s, err := b.Reset(t.Context()); s != RunningFull || err != nil {
		t.Errorf("%s %v", s, err)
	}
	release()
	if s := b.Status(); s.State != Idle || s.LastScan.Error != "" || s.LastReset.IsZero() {
		t.Errorf("%+v", s)
	}
	b.full()
	b.expect("npm a 1.0.0 node_modules/a/package.json")
}

// The intended use: one full scan, a reset, and only what is new from then on.
func TestAfterAResetOnlyWhatIsNewIsReported(t *testing.T) {
	b := newBench(t, nil)
	b.npm("old", "1.0.0")
	if s, err := b.FullScan(FullScanOptions{Path: b.dir, ThenRealTime: true}); s != RunningFull || err != nil {
		t.Fatal(s, err)
	}
	if err := b.Wait(t.Context()); err != nil || b.Status().State != RealTime {
		t.Fatal(err, b.Status().State)
	}
	b.expect("npm old 1.0.0 node_modules/old/package.json")
	if s, err := b.Reset(t.Context()); s != RealTime || err != nil {
		t.Fatal(s, err)
	}
	b.npm("new", "1.0.0")
	b.expect("npm new 1.0.0 node_modules/new/package.json")
	b.restart()
	b.until("what was missed", func() bool { return !b.isMissed() })
	b.expect("npm new 1.0.0 node_modules/new/package.json")
	b.npm("old", "1.0.0") // it is installed again
	b.expect("npm new 1.0.0 node_modules/new/package.json", "npm old 1.0.0 node_modules/old/package.json")
	b.stopped()
}

func (b *bench) isMissed() bool {
	b.Host.mu.Lock()
	defer b.Host.mu.Unlock()
	return b.missedChanges
}

func TestRealTimeFollowsWhatHappens(t *testing.T) {
	b := newBench(t, nil)
	b.start()
	want := b.everyKind("")
	b.expect(want...)
	b.npm("ws", "8.0.1")
	want[5] = "npm ws 8.0.1 node_modules/ws/package.json"
	b.expect(want...)
	before := created(t, b)

	if err := os.Rename(filepath.Join(b.dir, "g"), filepath.Join(b.dir, "h")); err != nil {
		t.Fatal(err)
	}
	b.news(Change{filepath.Join(b.dir, "g"), Removed}, Change{filepath.Join(b.dir, "h"), DirChanged})
	want[1] = "gem rack 3.0 h/specifications/rack-3.gemspec"
	b.expect(want...)
	if after := created(t, b); !after["rack"].Equal(before["rack"]) {
		t.Error("a package that moved has another date")
	}
	for _, name := range []string{"h", "p", "node_modules", "j/a.jar", "go", "r", "b/Cellar", "m", "i"} {
		b.remove(name)
	}
	b.expect()
	b.until("ten that are told to be gone", func() bool { // the old version of ws, too
		b.mu.Lock()
		defer b.mu.Unlock()
		gone := 0
		for _, e := range b.events {
			gone += e.Counts.Removed
		}
		return gone == 10
	})
}

func TestStopPopulatesBeforeItAnswers(t *testing.T) {
	b := newBench(t, func(o *Options) { o.debounce = debounce{quietTime: time.Hour, maxDelay: time.Hour} })
	b.start()
	b.npm("a", "1.0.0")
	b.stopped()
	if got := b.list(Query{}); !slices.Equal(got, []string{"npm a 1.0.0 node_modules/a/package.json"}) {
		t.Errorf("%q", got)
	}
	if s := b.Status(); s.Mounts != nil || s.Pending != 0 {
		t.Errorf("%+v", s)
	}
}

// What is being read when the stop comes is read to its end.
func TestStopEndsWhatIsBeingRead(t *testing.T) {
	const packages = 3 * rangeFiles
	b := newBench(t, nil)
	b.start()
	var list []Change
	for i := range packages {
		full := filepath.Join(b.dir, fmt.Sprintf("node_modules/p%d/package.json", i))
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755),
			os.WriteFile(full, fmt.Appendf(nil, `{"name":"p%d","version":"1.0.0"}`, i), 0o644)); err != nil {
			t.Fatal(err)
		}
		list = append(list, Change{full, FileChanged})
	}
	b.news(list...)
	b.until("the first", func() bool { return b.Status().Work.FilesRead > 0 })
	b.stopped()
	if got := len(b.list(Query{})); got != packages {
		t.Errorf("%d packages", got)
	}
}

func TestProgramsMatterByTheirPermission(t *testing.T) {
	b := newBench(t, nil)
	b.start()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	full := b.write("bin/tool", string(data))
	b.npm("a", "1.0.0")
	b.expect("npm a 1.0.0 node_modules/a/package.json")
	if err := os.Chmod(full, 0o755); err != nil {
		t.Fatal(err)
	}
	b.news(Change{full, FileChanged})
	b.until("a module of the program", func() bool {
		return slices.ContainsFunc(b.list(Query{}), func(l string) bool { return strings.HasPrefix(l, "go stdlib ") })
	})
}

func TestACaskGoesWithItsVersion(t *testing.T) {
	b := newBench(t, nil)
	b.start()
	b.write("Caskroom/x/1.0/x.wrapper.sh", "")
	b.write("Caskroom/x/.metadata/1.0/2026/Casks/x.json", "{}")
	b.expect("brew x 1.0 Caskroom/x/.metadata/1.0/2026/Casks/x.json Caskroom/x/1.0/x.wrapper.sh")
	b.remove("Caskroom/x/1.0")
	b.expect()
}

// Many more files than are kept waiting come and go, twice.
func TestStorm(t *testing.T) {
	const files, most = 1_000, 400
	b := newBench(t, func(o *Options) { o.debounce.quietTime, o.debounce.maxChanges = o.debounce.maxDelay, most })
	b.start()
	b.npm("stays", "1.0.0")
	for range 2 {
		for i := range files {
			full := filepath.Join(b.dir, fmt.Sprintf("storm/%d/node_modules/p%d/package.json", i%100, i))
			if i < 100 {
				b.write(strings.TrimPrefix(full, b.dir+"/"), fmt.Sprintf(`{"name":"p%d","version":"1.0.0"}`, i))
			}
			b.news(Change{full, Removed}) // most are
			if i%100 == 0 {
				if n := b.Status().Pending; n > most {
					t.Fatalf("%d changes wait", n)
				}
			}
		}
		b.remove("storm")
	}
	b.npm("last", "1.0.0")
	b.expect("npm last 1.0.0 node_modules/last/package.json", "npm stays 1.0.0 node_modules/stays/package.json")
	b.until("the count", func() bool { return b.Status().Counts.Files == 2 })
}

func TestRestartCatchesUp(t *testing.T) {
	b := newBench(t, nil)
	for _, n := range []string{"same", "changes", "goes"} {
		b.npm(n, "1.0.0")
	}
	b.start()
	read := b.Status().Work.FilesRead
	b.end()
	b.watch = nil
	b.npm("changes", "2.0.0")
	b.npm("comes", "1.0.0")
	b.remove("node_modules/goes")
	b.open()
	b.expect(
		"npm changes 2.0.0 node_modules/changes/package.json", "npm comes 1.0.0 node_modules/comes/package.json",
		"npm same 1.0.0 node_modules/same/package.json")
	if s := b.Status(); s.State != RealTime || s.Path != b.dir || s.Work.FilesRead != 2 || read != 3 {
		t.Errorf("%d, then %+v", read, s)
	}
	b.npm("live", "1.0.0")
	b.until("a package in real time", func() bool { return len(b.list(Query{})) == 4 })
}

func TestAnUnfinishedFullScanIsRepeated(t *testing.T) {
	b := newBench(t, nil)
	b.npm("a", "1.0.0")
	first := b.Host
	first.matchMu.Lock() // it does not end before the process does
	if _, err := b.FullScan(FullScanOptions{Path: b.dir}); err != nil {
		t.Fatal(err)
	}
	go func() {
		<-first.runCtx.Done()
		first.matchMu.Unlock()
	}()
	b.end()
	b.npm("b", "1.0.0")
	b.open()
	b.expect("npm a 1.0.0 node_modules/a/package.json", "npm b 1.0.0 node_modules/b/package.json")
	b.until("its end", func() bool { return b.Status().State == Idle && b.Status().LastScan != nil })
}

func TestADamagedCatalogIsRebuilt(t *testing.T) {
	b := newBench(t, nil)
	b.npm("a", "1.0.0")
	b.start()
	b.end()
	for _, path := range []string{b.options.InventoryPath, b.options.InventoryPath + ".damaged-20260101T000000.000Z"} {
		if err := os.WriteFile(path, []byte(strings.Repeat("not a catalogue ", 4000)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.open()
	b.expect("npm a 1.0.0 node_modules/a/package.json")
	b.until("real-time scanning", func() bool { return b.Status().State == RealTime })
	if w := b.Status().Warnings; !strings.Contains(strings.Join(w, "\n"), "set aside as "+b.options.InventoryPath+
		".damaged-") {
		t.Errorf("%q", w)
	}
	if left, _ := filepath.Glob(b.options.InventoryPath + ".damaged-*"); len(left) != 1 ||
		strings.HasSuffix(left[0], "-20260101T000000.000Z") {
		t.Errorf("%q", left)
	}
}

// watchOnly begins real-time scanning of the directory without a full scan, as for the whole host.
func (b *bench) watchOnly() {
	b.t.Helper()
	if err := b.Host.watchRoot(b.dir); err != nil {
		b.t.Fatal(err)
	}
	b.Host.mu.Lock()
	defer b.Host.mu.Unlock()
	b.state, b.saved.State = RealTime, RealTime
	b.saveStateLocked()
	b.realTime.catchUpLocked()
}

func TestStartWithoutAFullScanReportsOnlyChanges(t *testing.T) {
	b := newBench(t, nil)
	b.npm("old", "1.0.0")
	time.Sleep(2 * clockGranularity)
	b.watchOnly()
	b.npm("new", "1.0.0")
	b.until("the old ones being noted", func() bool { return b.realTime.isBaselineKnown() })
	b.expect("npm new 1.0.0 node_modules/new/package.json")
	b.restart()
	b.until("what was missed", func() bool { return !b.isMissed() })
	b.expect("npm new 1.0.0 node_modules/new/package.json")
}

// TestWatcherThatEnded: a start of real-time scanning watches again, and finds what was missed.
func TestWatcherThatEnded(t *testing.T) {
	b := newBench(t, nil)
	b.start()
	b.mark("job", "")
	b.watch.failure <- errors.New("no memory")
	b.warns("no longer receives changes: no memory")
	<-b.realTime.watcherEnded
	if gap := b.Gap(b.Marks()[0]); gap != "real-time scanning receives no changes" {
		t.Errorf("gap %q", gap)
	}
	b.npm("missed", "1.0.0")
	b.watchOnly()
	b.npm("new", "1.0.0")
	b.expectSince("job", []string{
		"missed 1.0.0 node_modules/missed/package.json", "new 1.0.0 node_modules/new/package.json",
	}, nil)
	if gap := b.Gap(b.Marks()[0]); gap != "" {
		t.Errorf("gap %q", gap)
	}
}

func TestFindingsAndRules(t *testing.T) {
	b := newBench(t, func(o *Options) {
		o.Database.Path = filepath.Join(filepath.Dir(o.InventoryPath), "vuln.db")
		if err := os.MkdirAll(filepath.Dir(o.InventoryPath), 0o755); err != nil {
			t.Fatal(err)
		}
		database(t, o.Database.Path, vulndbtest.Built, "a")
	})
	b.npm("a", "1.0.0")
	b.npm("b", "1.0.0")
	b.npm("d", "1.0.0")
	b.start()
	if got := b.findings(Query{}); !slices.Equal(got, []string{"a 1.0.0 CVE-2026-a"}) {
		t.Fatalf("%q: %+v", got, b.Status())
	}
	if got := b.list(Query{MinScore: 7}); len(got) != 1 {
		t.Errorf("%q", got)
	}
	if got := b.findings(Query{MinScore: 8}); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if err := b.SetRules(Rules{IgnoredCVEs: []string{"CVE-2026-a"}}); err != nil || len(b.findings(Query{})) != 0 {
		t.Errorf("%v", err)
	}
	if err := b.SetRules(Rules{}); err != nil {
		t.Error(err)
	}

	// A newer database makes an old package vulnerable, from now on. Only the database is checked
	// during this time: the catch-up of a real-time scan would compare too, and report the finding
	// as its own.
	b.stopped()
	then := b.monotonicNow()
	database(t, b.options.Database.Path, vulndbtest.Built.Add(time.Hour), "a", "b")
	b.restart()
	b.until("a finding", func() bool { return len(b.findings(Query{})) == 2 })
	if got := b.findings(Query{Since: then}); !slices.Equal(got, []string{"b 1.0.0 CVE-2026-b"}) {
		t.Errorf("%q", got)
	}
	if got := b.list(Query{Since: then}); len(got) != 0 {
		t.Errorf("%q", got)
	}
	b.until("the event", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.ContainsFunc(b.events, func(e Event) bool {
			return e.Trigger == ByDatabase && e.Counts == EventCounts{Findings: 1} &&
				e.Findings[0].Vulnerability.ID == "CVE-2026-b"
		})
	})
	// Another one of the same date counts as well: an older advisory was added.
	b.start()
	database(t, b.options.Database.Path, vulndbtest.Built.Add(time.Hour), "a", "b", "d")
	b.restart()
	b.until("a finding of the other", func() bool { return slices.Contains(b.findings(Query{}), "d 1.0.0 CVE-2026-d") })
	b.npm("c", "1.0.0")
	b.npm("b", "1.5.0")
	b.until("a finding in real time", func() bool { return slices.Contains(b.findings(Query{}), "b 1.5.0 CVE-2026-b") })
	if d := b.Status().Database; !d.MatchedBuilt.Equal(vulndbtest.Built.Add(time.Hour)) || !d.Present {
		t.Errorf("%+v", d)
	}
}

func TestUpdatesComeByListing(t *testing.T) {
	offered := filepath.Join(t.TempDir(), "vuln.db")
	b := newBench(t, func(o *Options) {
		o.Database = Database{Path: filepath.Join(filepath.Dir(o.InventoryPath),
			"vuln.db"), Listing: filepath.Join(filepath.Dir(offered), "listing.json")}
	})
	b.npm("a", "1.0.0")
	b.full()
	if s := b.Status(); len(s.Warnings) == 0 || s.Database.Present {
		t.Errorf("%+v", s)
	}
	if err := b.UpdateDatabase(t.Context()); err == nil || b.Status().Database.Error == "" ||
		b.Status().Work.Failures == 0 {
		t.Errorf("%v %+v", err, b.Status().Database)
	}
	database(t, offered, vulndbtest.Built, "a")
	listing(t, offered)
	if err := b.UpdateDatabase(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.findings(Query{}); !slices.Equal(got, []string{"a 1.0.0 CVE-2026-a"}) {
		t.Errorf("%q", got)
	}
	if s := b.Status(); s.Database.Error != "" || s.Work.Updates != 1 || s.Database.NextCheck.IsZero() {
		t.Errorf("%+v", s.Database)
	}
}

func listing(t *testing.T, database string) {
	t.Helper()
	_, err := update.WriteListing(t.Context(),
		update.ListingOptions{Database: database, Target: filepath.Join(filepath.Dir(database), "listing.json")})
	if err != nil {
		t.Fatal(err)
	}
}

func TestConcurrentCalls(t *testing.T) {
	b := newBench(t, nil)
	for i := range 300 {
		b.npm(fmt.Sprint("p", i), "1.0.0")
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for n := range 8 {
		all.Go(func() {
			for i := range 6 {
				switch (n + i) % 6 {
				case 0:
					_, _ = b.FullScan(FullScanOptions{Path: b.dir, ThenRealTime: n%2 == 0})
				case 1:
					_, _ = b.StartRealTime(b.dir)
				case 2:
					_, _ = b.Stop(ctx)
				case 3:
					_, _ = b.Reset(ctx)
				case 4:
					b.Status()
				default:
					b.list(Query{})
				}
			}
		})
	}
	all.Wait()
	b.stopped()
	b.full()
	if got := len(b.list(Query{})); got != 300 {
		t.Errorf("%d packages", got)
	}
}

func TestRulesThatMakeNoSenseAreRefused(t *testing.T) {
	if _, err := Open(Options{InventoryPath: filepath.Join(t.TempDir(),
		"c"), Rules: Rules{IgnoredPackages: []string{"openssl"}}}); err == nil {
		t.Error("no error")
	}
}

func TestWhatMakesAScanPartial(t *testing.T) {
	var s ScanResult
	s.addPass(treeScanResult{listing: &catalog.Listing{Warnings: []catalog.Warning{
		{Path: "/a", Message: "the directory cannot be listed: " + syscall.ENOENT.Error()},
		{Path: "/b/package.json", Message: "npm: " + syscall.ENOTDIR.Error()},
		{Path: "/c", Message: "it makes no sense", InvalidContent: true},
		// not a user's file system
		{Path: "/proc", Message: "the directory cannot be listed: " + syscall.EACCES.Error()},
		{Path: "/e", Message: "the directory cannot be listed: " + syscall.EIO.Error()},
	}, Skipped: []catalog.Warning{{Path: "/f"}, {Path: "/g"}}}}, func(path string) bool { return path == "/g" })
	if s.Denied != 1 || s.Unread != 2 || len(s.FirstUnread) != 3 || s.Skipped != 1 || len(s.FirstSkipped) != 1 {
		t.Errorf("%+v", s)
	}
}

func TestADamagedDatabaseIsReported(t *testing.T) {
	b := newBench(t, func(o *Options) {
		o.Database.Path = filepath.Join(filepath.Dir(o.InventoryPath), "vuln.db")
		if err := os.MkdirAll(filepath.Dir(o.InventoryPath), 0o755); err != nil {
			t.Fatal(err)
		}
		database(t, o.Database.Path, vulndbtest.Built, "a")
	})
	b.start()
	b.until("the error", func() bool { // a comparison of the start may succeed after it
		err := b.Host.matchError(fmt.Errorf("match: %w", vulndb.ErrDamaged))
		return err != nil && strings.Contains(b.Status().Database.Error, "damaged")
	})
	b.npm("a", "1.0.0") // the next comparison succeeds
	b.until("a finding", func() bool { return len(b.findings(Query{})) == 1 && b.Status().Database.Error == "" })
}

// TestAKeyThatIsSetLater: the key applies to a database that was installed before.
func TestAKeyThatIsSetLater(t *testing.T) {
	b := newBench(t, func(o *Options) {
		o.Database.Path = filepath.Join(filepath.Dir(o.InventoryPath), "vuln.db")
		o.Database.Key = make(ed25519.PublicKey, ed25519.PublicKeySize)
		brought := filepath.Join(t.TempDir(), "vuln.db")
		database(t, brought, vulndbtest.Built, "a")
		if _, err := update.Import(t.Context(), brought, update.Options{Target: o.Database.Path}); err != nil {
			t.Fatal(err)
		}
	})
	b.npm("a", "1.0.0")
	b.full()
	b.until("a reason", func() bool {
		return strings.Contains(b.Status().Database.Error, "the signature is missing or invalid")
	})
	if got := b.findings(Query{}); len(got) > 0 {
		t.Errorf("%q", got)
	}
}
