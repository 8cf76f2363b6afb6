package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// shell changes files as another process does: the scanner's own changes are not reported.
func (b *bench) shell(script string) {
	b.t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = b.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("%v\n%s", err, out)
	}
}

// TestThisMachine uses the real watcher of this machine, with the permissions of this user.
func TestThisMachine(t *testing.T) {
	b := newBench(t, func(o *Options) { o.NewWatcher, o.debounce = nil, debounce{} })
	b.shell(`mkdir -p node_modules/old; echo '{"name":"old","version":"1.0.0"}' > node_modules/old/package.json`)
	b.start()
	b.shell(`mkdir -p a/node_modules/x; echo '{"name":"x","version":"1.0.0"}' > a/node_modules/x/package.json`)
	begun := time.Now()
	b.until("a package", func() bool { return len(b.list(Query{})) == 2 })
	t.Logf("a package after %v", time.Since(begun).Round(10*time.Millisecond))
	b.shell(`mv a b; rm -r node_modules/old`)
	b.expect("npm x 1.0.0 b/node_modules/x/package.json")
	b.shell(
		`for i in $(seq 200); do mkdir -p many/node_modules/p$i; echo "{\"name\":\"p$i\",\"version\":\"1.0.0\"}" > many/node_modules/p$i/package.json; done`)
	b.stopped()
	live := b.list(Query{})
	if len(live) != 201 {
		t.Errorf("%d packages when the stop answered", len(live))
	}
	b.full()
	if got := b.list(Query{}); !slices.Equal(got, live) {
		t.Errorf("a full scan finds\n%s\nreal time found\n%s", strings.Join(got, "\n"), strings.Join(live, "\n"))
	}
}

func TestPlacesAreAbsolute(t *testing.T) {
	for _, p := range append(watchedDirs("/"), watchedDirs("/x")...) {
		if !filepath.IsAbs(p) {
			t.Error(p)
		}
	}
	if got := fmt.Sprint(watchedDirs("/x")); got != "[/x]" {
		t.Error(got)
	}
}

// TestKillAnywhere kills a child scanner: while it scans, while packages come, while it catches up.
// In the end its inventory equals that of a scanner that was never disturbed.
func TestKillAnywhere(t *testing.T) {
	if dir := os.Getenv("HOST_CHILD"); dir != "" {
		childHost(dir)
		return
	}
	t.Parallel()
	b := newBench(t, func(o *Options) { o.NewWatcher, o.debounce = nil, debounce{} })
	b.end()
	for i := range 200 {
		b.npm(fmt.Sprint("first", i), "1.0.0")
	}
	for round := range 10 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillAnywhere$")
		cmd.Env = append(os.Environ(), "HOST_CHILD="+filepath.Dir(b.dir))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(30+round*37) * time.Millisecond)
		b.shell(fmt.Sprintf(`
			mkdir -p node_modules/r%[1]d again/node_modules; echo '{"name":"r%[1]d","version":"1.0.0"}' > node_modules/r%[1]d/package.json
			rm -r node_modules/first%[1]d; mv node_modules/first1%[1]d again/node_modules/
			echo '{"name":"first2%[1]d","version":"2.0.0"}' > node_modules/first2%[1]d/package.json`, round))
		time.Sleep(time.Duration(round*151) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	b.open()
	if s := b.Status(); len(s.Warnings) > 1 { // without a database
		t.Errorf("%q", s.Warnings)
	}
	var settled []string
	b.until("the catalogue to settle", func() bool {
		b.Host.mu.Lock()
		quiet := b.Host.fullScan == nil && b.saved.BaselineKnown && !b.missedChanges
		b.Host.mu.Unlock()
		settled = b.list(Query{})
		return quiet && len(settled) == 200
	})
	b.stopped()
	if _, err := b.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.full()
	if got := b.list(Query{}); !slices.Equal(got, settled) {
		t.Errorf("a full scan finds\n%s\nafter the kills\n%s", strings.Join(got, "\n"), strings.Join(settled, "\n"))
	}
}

// childHost scans until it is killed.
func childHost(base string) {
	dir := filepath.Join(base, "tree")
	h, err := Open(Options{InventoryPath: filepath.Join(base, "own", "catalogue.db")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		<-h.resumed
		if h.Status().State == Idle {
			_, _ = h.StartRealTime(dir)
		}
		for h.Wait(context.Background()) == nil {
			_, _ = h.FullScan(FullScanOptions{Path: dir})
			time.Sleep(50 * time.Millisecond)
		}
	}()
	_ = h.Run(context.Background())
}
