package host

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// told is a watcher that reports the changes a test makes.
type told struct {
	options WatchOptions
	news    chan []Change
	flushes chan chan struct{}
	closed  chan struct{}
	failure chan error // ends Run
	mounts  []Mount    // in addition to the root
}

func (w *told) Run(ctx context.Context, take func([]Change)) error {
	for {
		select {
		case list := <-w.news:
			take(list)
		case done := <-w.flushes:
			for len(w.news) > 0 {
				take(<-w.news)
			}
			close(done)
		case err := <-w.failure:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *told) Flush(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case w.flushes <- done:
		<-done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *told) Mounts() []Mount {
	return append([]Mount{{Path: w.options.Root, Method: "told"}}, w.mounts...)
}
func (w *told) Close() error { close(w.closed); return nil }

// bench is a scanner and its own directory to scan.
type bench struct {
	*Host
	t       *testing.T
	dir     string // that is scanned
	options Options

	mu     sync.Mutex
	watch  *told
	events []Event
	end    func()
}

func newBench(t *testing.T, change func(*Options)) *bench {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dir: filepath.Join(base, "tree")}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.options = Options{
		InventoryPath: filepath.Join(base, "own", "catalogue.db"),
		debounce: debounce{
			quietTime: 20 * time.Millisecond, maxDelay: 100 * time.Millisecond,
			retryDelay: 50 * time.Millisecond,
		},
		NewWatcher: func(o WatchOptions) (Watcher, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.watch = &told{options: o, news: make(chan []Change,
				100), flushes: make(chan chan struct{}), closed: make(chan struct{}), failure: make(chan error)}
			return b.watch, nil
		},
		OnChange: func(e Event) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events = append(b.events, e)
		},
	}
	if change != nil {
		change(&b.options)
	}
	b.open()
	t.Cleanup(func() { b.end() })
	return b
}

// open starts the scanner, as a new process would.
func (b *bench) open() {
	b.t.Helper()
	h, err := Open(b.options)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	b.Host = h
	b.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
	go func() { done <- h.Run(ctx) }()
	<-h.resumed
}

// write writes a file below the directory and notifies the scanner.
func (b *bench) write(name, text string) string {
	b.t.Helper()
	full := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	b.news(Change{full, FileChanged})
	return full
}

func (b *bench) news(list ...Change) {
	b.mu.Lock()
	w := b.watch
	b.mu.Unlock()
	if w != nil {
		select {
		case w.news <- list:
		case <-w.closed:
		}
	}
}

func (b *bench) npm(name, version string) string {
	return b.write("node_modules/"+name+"/package.json", fmt.Sprintf(`{"name":%q,"version":%q}`, name, version))
}

func (b *bench) remove(name string) {
	b.t.Helper()
	full := filepath.Join(b.dir, name)
	if err := os.RemoveAll(full); err != nil {
		b.t.Fatal(err)
	}
	b.news(Change{full, Removed})
}

// until waits for a condition that soon holds.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%s did not come: %+v\n%s", what, b.Status(), strings.Join(b.list(Query{}), "\n"))
		}
	}
}

func (b *bench) warns(of string) {
	b.t.Helper()
	b.until("a warning", func() bool {
		return slices.ContainsFunc(b.Status().Warnings, func(w string) bool { return strings.Contains(w, of) })
	})
}

// list returns the packages of a report, with paths relative to the directory.
func (b *bench) list(q Query) []string {
	b.t.Helper()
	var out []string
	for p, err := range b.Report(q).Packages() {
		if err != nil {
			b.t.Fatal(err)
		}
		line := fmt.Sprintf("%s %s %s", p.Kind, p.Name, p.Version)
		for _, l := range p.Locations {
			line += " " + strings.TrimPrefix(l, b.dir+"/")
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

func (b *bench) findings(q Query) []string {
	b.t.Helper()
	var out []string
	for f, err := range b.Report(q).Findings() {
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s %s %s", f.Package.Name, f.Package.Version, f.Vulnerability.ID))
	}
	return out
}

func (b *bench) expect(want ...string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%q", want), func() bool { return slices.Equal(b.list(Query{}), want) })
}

// full runs a full scan of the directory to its end.
func (b *bench) full() {
	b.t.Helper()
	if s, err := b.FullScan(FullScanOptions{Path: b.dir}); s != RunningFull || err != nil {
		b.t.Fatal(s, err)
	}
	if err := b.Wait(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	if last := b.Status().LastScan; last == nil || last.Error != "" {
		b.t.Fatalf("%+v", last)
	}
}

func (b *bench) start() {
	b.t.Helper()
	if s, err := b.StartRealTime(b.dir); s != RunningFull || err != nil {
		b.t.Fatal(s, err)
	}
	if err := b.Wait(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	if s := b.Status().State; s != RealTime {
		b.t.Fatal(s)
	}
}

func (b *bench) stopped() {
	b.t.Helper()
	if s, err := b.Stop(b.t.Context()); s != Idle || err != nil {
		b.t.Fatal(s, err)
	}
}

// restart ends the scanner as a killed process would: nothing is flushed.
func (b *bench) restart() {
	b.t.Helper()
	b.end()
	b.open()
}

func jar(t *testing.T, group, artifact, version string) string {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	w, err := z.Create("META-INF/maven/" + group + "/" + artifact + "/pom.properties")
	if err == nil {
		_, err = fmt.Fprintf(w, "groupId=%s\nartifactId=%s\nversion=%s\n", group, artifact, version)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// everyKind writes a package of each kind and returns the names they are reported under.
func (b *bench) everyKind(in string) []string {
	b.t.Helper()
	b.write(in+"g/specifications/rack-3.gemspec", "# stub: rack 3.0 ruby lib\n")
	b.write(in+"p/site-packages/six.dist-info/METADATA", "Name: six\nVersion: 1\n")
	b.write(in+"node_modules/ws/package.json", `{"name":"ws","version":"8.0.0"}`)
	b.write(in+"j/a.jar", jar(b.t, "g.x", "a", "1.2"))
	b.write(in+"go/go.mod", "module x\nrequire a.test/b v1.0.0\n")
	b.write(in+"r/Cargo.lock", "[[package]]\nname = \"time\"\nversion = \"0.1.0\"\nsource = \"x\"\n")
	b.write(in+"b/Cellar/jq/1.7/INSTALL_RECEIPT.json", "{}")
	b.write(in+"m/A.app/Contents/Info.plist", `{ CFBundleName = A; CFBundleVersion = 3; }`)
	b.write(in+"i/Podfile.lock", "PODS:\n  - AFN (1.0)\n")
	out := []string{
		"brew jq 1.7 " + in + "b/Cellar/jq/1.7/INSTALL_RECEIPT.json",
		"gem rack 3.0 " + in + "g/specifications/rack-3.gemspec",
		"go a.test/b v1.0.0 " + in + "go/go.mod",
		"java g.x:a 1.2 " + in + "j/a.jar",
		"macos-app A 3 " + in + "m/A.app/Contents/Info.plist",
		"npm ws 8.0.0 " + in + "node_modules/ws/package.json",
		"pod AFN 1.0 " + in + "i/Podfile.lock",
		"python six 1 " + in + "p/site-packages/six.dist-info/METADATA",
		"rust time 0.1.0 " + in + "r/Cargo.lock",
	}
	return out
}

// database writes one with advisories for some npm packages, all versions below 2.
func database(t *testing.T, path string, built time.Time, names ...string) {
	t.Helper()
	slices.Sort(names)
	var out bytes.Buffer
	f, err := os.Create(path + ".new")
	if err != nil {
		t.Fatal(err)
	}
	w, err := vulndb.NewWriter(f, built)
	if err != nil {
		t.Fatal(err, out)
	}
	for _, n := range names {
		if err := w.Vulnerability(vulndb.Vulnerability{ID: "CVE-2026-" +
			n, Score: vulndb.Score{Base: 7.5, Severity: vulndb.High, Version: "3.1"}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range names {
		a := vulndb.Advisory{
			ID: "GHSA-" + n, Source: vulndb.GHSA, CVEs: []string{"CVE-2026-" + n}, Ecosystem: vulndb.NPM, Name: n,
			Ranges: []vulndb.Range{{Fixed: "2.0.0"}},
		}
		if err := w.Advisory(a); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close([]vulndb.SourceInfo{{Name: "test", Date: built, Records: len(names)}}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
