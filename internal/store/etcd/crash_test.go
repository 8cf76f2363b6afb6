package etcd

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/store"
)

// crashDir makes the test binary run a child of crashWork in this directory instead of the tests.
const (
	crashDir  = "BUILDYARD_CRASH_DIR"
	crashName = "BUILDYARD_CRASH_WORK"
)

// crashWork has the tasks of a child until it is killed.
var crashWork = map[string]func(dir string) error{
	"write":    func(dir string) error { return crashChild(dir, nil) },
	"maintain": func(dir string) error { return crashChild(dir, maintainOnAndOn) },
	"backup":   backupOnAndOn,
	"restore":  restoreOnAndOn,

	"full disk":           func(dir string) error { return writeToFullDisk(dir, false) },
	"full disk, no limit": func(dir string) error { return writeToFullDisk(dir, true) },
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		if err := crashWork[os.Getenv(crashName)](dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if flag.Lookup("rapid.checks").Value.String() == "100" { // each opens two stores on a real disk
		_ = flag.Set("rapid.checks", strconv.Itoa(often(25)))
	}
	os.Exit(m.Run())
}

// often returns how many of n tries a test makes: a third under the race detector, which observes
// only this process and slows all of it. Real processes are killed more often by make test-fault.
func often(n int) int {
	if raceDetector {
		return n/3 + 1
	}
	return n
}

type crashRecord struct{ N int }

func openCrashStore(ctx context.Context, dir string) (*Backend, *store.Store, *store.Table[crashRecord], error) {
	b, err := StartEmbedded(ctx, EmbeddedOptions{Dir: dir})
	if err != nil {
		return nil, nil, nil, err
	}
	table := store.NewTable[crashRecord]("c")
	s, err := store.Open(ctx, b, store.Options{Tables: []store.AnyTable{table}})
	return b, s, table, err
}

// crashChild writes until it is killed, concurrently with its second argument, which may be nil. A
// line on stdout, written in one call, means that a commit was acknowledged.
func crashChild(dir string, beside func(*Backend)) error {
	ctx := context.Background()
	b, s, table, err := openCrashStore(ctx, dir)
	if err != nil {
		return err
	}
	if beside != nil {
		go beside(b)
	}
	if _, err := s.Campaign(ctx, "work"); err != nil {
		return err
	}
	run := table.Len()
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", run, w, i)
				// Two records in each commit: after the crash both are there or neither.
				err := s.Commit(ctx,
					store.Put(table, id+"-left", &crashRecord{i}, store.IfAbsent),
					store.Put(table, id+"-right", &crashRecord{i}, store.IfAbsent))
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				fmt.Fprintln(os.Stdout, id)
			}
		})
	}
	wg.Wait()
	return nil
}

// maintainOnAndOn compacts and rewrites the file without pauses.
func maintainOnAndOn(b *Backend) {
	for {
		if err := errors.Join(b.maintainer.compact(b.ctx), b.maintainer.defrag(b.ctx, "")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
	}
}

func TestKilledProcessLosesNothing(t *testing.T) {
	for _, work := range []string{"write", "maintain"} {
		t.Run(work, func(t *testing.T) { killAndLook(t, work) })
	}
}

func killAndLook(t *testing.T, work string) {
	dir := t.TempDir()
	acked := map[string]bool{}
	for round := range often(3) {
		runAndKill(t, work, dir, acked, 300*(round+1))
		b, s, table, err := openCrashStore(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		lost := 0
		for id := range acked {
			if _, _, ok := table.Get(id + "-left"); !ok {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("round %d: %d of %d acknowledged commits are lost", round, lost, len(acked))
		}
		for id := range table.All() {
			if left, isRight := strings.CutSuffix(id, "-right"); isRight {
				if _, _, ok := table.Get(left + "-left"); !ok {
					t.Errorf("half of the commit %s is there", left)
				}
			}
		}
		t.Logf("round %d: %d acknowledged, %d records", round, len(acked), table.Len())
		if _, err := s.Campaign(t.Context(), "work"); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// runAndKill collects acknowledgements of a child and kills it in the middle of its work.
func runAndKill(t *testing.T, work, dir string, acked map[string]bool, after int) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), crashDir+"="+dir, crashName+"="+work)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines, n := bufio.NewScanner(out), 0
	for lines.Scan() {
		acked[lines.Text()] = true
		if n++; n == after {
			if err := child.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := child.Wait(); err == nil || n < after {
		t.Fatalf("the child ended by itself (%v) after %d acknowledgements", err, n)
	}
}
