package registry

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/tools/crashfs"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

var errSync = errors.New("the disk does not answer")

// syncs lets one sync of a storage fail.
type syncs struct {
	tree *crashfs.Tree

	mu              sync.Mutex // guards the fields below
	operation, step string     // the newest
	points          []string   // the step before each sync
	fail            int        // number of the sync that fails, from 1
}

func (s *syncs) hooks() layout.Hooks {
	return layout.Hooks{
		Step: func(step string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.step = step
		},
		Sync: func(f *os.File) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			point := s.step
			if point == "mkdir.dirsync" { // the operation determines which directory is created
				point += " in " + s.operation
			}
			if s.points = append(s.points, point); len(s.points) == s.fail {
				return errSync
			}
			return s.tree.Sync(f)
		},
	}
}

func (s *syncs) begin(operation string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.operation = operation
}

func (s *syncs) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fail > 0 && len(s.points) >= s.fail
}

// TestFailedSyncAtEveryPoint: an operation with a failed sync returns an error. What it acknowledges despite
// that survives every crash, immediately or after it is tried again.
func TestFailedSyncAtEveryPoint(t *testing.T) {
	if testing.Short() {
		t.Skip("opens a storage for every sync")
	}
	for _, n := range fulltest.Some(t, 20, sampledSteps(failSync(t, -1))) {
		failSync(t, n)
	}
}

// sampledSteps returns the numbers, from 1, of the steps to try: each point once, in one of the operations that
// reach it. With BUILDYARD_TEST_ALL it returns all.
func sampledSteps(steps []string) []int {
	times := map[string][]int{}
	var all []int
	for i, step := range steps {
		times[step] = append(times[step], i+1)
		all = append(all, i+1)
	}
	if os.Getenv(crashAll) != "" {
		return all
	}
	var some []int
	for i, step := range slices.Sorted(maps.Keys(times)) {
		some = append(some, times[step][i*5%len(times[step])])
	}
	slices.Sort(some)
	return some
}

// failSync runs the operations up to the one with the failed sync, and checks what a crash leaves of an
// operation that was acknowledged. It returns the points of all syncs.
func failSync(t *testing.T, fail int) []string {
	t.Helper()
	dir := quickDir(t)
	defer os.RemoveAll(dir)
	base := filepath.Join(dir, "storage")
	must(t, os.Mkdir(base, 0o750))
	tree, err := crashfs.Watch(base)
	must(t, err)
	defer tree.Close()
	s := &syncs{tree: tree, fail: fail}

	r, err := Open(t.Context(), Options{Base: base, Hooks: s.hooks()})
	if errors.Is(err, errSync) {
		return nil
	}
	must(t, err)
	defer r.Close()
	for i, op := range operations {
		s.begin(op.name)
		err := op.do(r)
		if err != nil && !errors.Is(err, errSync) {
			t.Fatalf("sync %d failed, %s: %v", fail, op.name, err)
		}
		if err != nil { // a client tries again; the files that it finds in place are not durable yet
			err = op.do(r)
		}
		if err == nil && s.failed() {
			s.judge(t, dir, i+1)
		}
		if s.failed() {
			return nil
		}
	}
	return s.points
}

// judge opens and checks what each kind of crash leaves after the first done operations.
func (s *syncs) judge(t *testing.T, dir string, done int) {
	t.Helper()
	for i, keep := range crashfs.Keeps {
		state, err := s.tree.Crash(keep)
		must(t, err)
		c := crash{base: filepath.Join(dir, fmt.Sprint(i)), keep: keep, done: done}
		must(t, state.Write(c.base))
		if err := c.judge(); err != nil {
			t.Errorf("sync at %s failed in %s, then %s: %v", s.points[s.fail-1], s.operation, keep, err)
		}
	}
}
