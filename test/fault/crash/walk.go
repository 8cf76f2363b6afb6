package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/buildyard/buildyard/internal/tools/failpoint"
	"github.com/buildyard/buildyard/test/rig"
)

// Options are the options of a walk.
type Options struct {
	Programs rig.Programs
	Dir      string     // of everything that it writes
	Rand     *rand.Rand // of what the disks hold and which bits are flipped
	// Every has each step killed at every time that an operation comes to it, not only at the first and the last.
	Every bool
	Say   func(format string, args ...any)
}

// walk is one run.
type walk struct {
	Options
	program string            // built with failpoints
	logs    string            // directory of the registries' logs, not on their disks
	sources string            // local files of the versions
	sums    map[string]string // local file -> SHA-256

	mu     sync.Mutex        // guards the fields below
	roots  map[string]string // local file -> name of its layer
	report *Report
}

// workers is the number of trials at a time.
const workers = 2

// meeting is a step of an operation.
type meeting struct {
	op   int
	step string
	nth  int // time that the process comes to it
}

// Run tries everything.
func Run(ctx context.Context, o Options) (*Report, error) {
	w := &walk{
		Options: o, program: filepath.Join(o.Dir, "buildyard-failpoint"), sources: filepath.Join(o.Dir, "sources"),
		logs:  filepath.Join(o.Dir, "logs"),
		roots: map[string]string{}, report: &Report{},
	}
	points, err := failpoint.Read(o.Programs.Root())
	if err != nil {
		return nil, err
	}
	for _, name := range points {
		w.report.Points = append(w.report.Points, &Point{Name: name, Reason: unmet[name]})
	}
	if err := o.Programs.BuildTagged(ctx, "failpoint", "buildyard", w.program); err != nil {
		return nil, err
	}
	if err := errors.Join(rig.MakeDir(w.sources), rig.MakeDir(w.logs)); err != nil {
		return nil, err
	}
	if w.sums, err = makeSources(w.sources, o.Rand); err != nil {
		return nil, err
	}
	met, err := w.trace(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.tryAll(ctx, met); err != nil {
		return nil, err
	}
	return w.report, w.flips(ctx)
}

// snapshot is the storage that an operation begins with.
func (w *walk) snapshot(op int) string { return filepath.Join(w.Dir, fmt.Sprintf("storage%d", op)) }

// trace runs every operation, keeps the storages between them, and returns the steps that they
// reach.
func (w *walk) trace(ctx context.Context) (met []meeting, err error) {
	if err := rig.MakeDir(w.snapshot(0)); err != nil {
		return nil, err
	}
	work, unmount, err := smallDisk(filepath.Join(w.Dir, "trace"), large)
	if err != nil {
		w.report.NoDisk = err.Error()
	}
	defer func() { err = errors.Join(err, unmount()) }()
	for i, op := range operations {
		if op.fills && w.report.NoDisk != "" {
			if err := os.CopyFS(w.snapshot(i+1), os.DirFS(w.snapshot(i))); err != nil {
				return nil, err
			}
			continue
		}
		if op.prepare != nil {
			if err := op.prepare(w.snapshot(i)); err != nil {
				return nil, err
			}
		}
		base, file := filepath.Join(work, "storage"), filepath.Join(w.Dir, fmt.Sprintf("trace%d", i))
		if err := os.CopyFS(base, os.DirFS(w.snapshot(i))); err != nil {
			return nil, err
		}
		l := op.launch
		l.plan.Trace = file
		if err := w.carryOut(ctx, base, op, l); err != nil {
			return nil, fmt.Errorf("%s: %w", op.name, err)
		}
		steps, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		met = append(met, w.worth(i, strings.Fields(string(steps)))...)
		if err := errors.Join(os.CopyFS(w.snapshot(i+1), os.DirFS(base)), os.RemoveAll(base)); err != nil {
			return nil, err
		}
	}
	w.Say("%d operations come to their steps at %d moments", len(operations), len(met))
	return met, nil
}

// carryOut runs an operation with a separate registry and checks its result.
func (w *walk) carryOut(ctx context.Context, base string, op operation, l launch) error {
	s, err := w.start(ctx, base, l)
	if err == nil {
		err = op.do(ctx, w, s)
	}
	if err == nil {
		var state string
		if state, err = s.state(ctx); err == nil && state != op.want {
			err = fmt.Errorf("the template is %q, expected %q", state, op.want)
		}
	}
	if s != nil {
		err = errors.Join(err, s.end())
	}
	return err
}

// worth returns the moments to try: the first and the last time that an operation comes to a step, or every time.
func (w *walk) worth(op int, steps []string) (met []meeting) {
	times := map[string]int{}
	for _, step := range steps {
		times[step]++
		met = append(met, meeting{op, step, times[step]})
	}
	for step := range times {
		p := w.report.point(step)
		p.Operations = append(p.Operations, operations[op].name)
	}
	return slices.DeleteFunc(met, func(m meeting) bool { return !w.Every && m.nth != 1 && m.nth != times[m.step] })
}

// tryAll kills and fills at every moment.
func (w *walk) tryAll(ctx context.Context, met []meeting) error {
	todo := make(chan meeting)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() { errs[i] = w.work(ctx, filepath.Join(w.Dir, fmt.Sprintf("work%d", i)), todo) })
	}
	for _, m := range met {
		todo <- m
	}
	close(todo)
	wg.Wait()
	return errors.Join(errs...)
}

// The sizes, in MiB, of the file systems that operations have: nearly all a small one, since it has to be filled. No
// chain is put together when less than 64 MiB would stay free.
const (
	small = 16
	large = 128
)

// work tries moments below a directory.
func (w *walk) work(ctx context.Context, dir string, todo <-chan meeting) error {
	n := 0
	for m := range todo {
		if ctx.Err() != nil {
			continue // the sender waits for us
		}
		w.try(ctx, dir, m, false)
		if op := operations[m.op]; w.report.NoDisk == "" && !op.fills && m.nth == 1 {
			w.try(ctx, dir, m, true)
		}
		if n++; n%50 == 0 {
			w.Say("%d moments tried in %s", n, filepath.Base(dir))
		}
	}
	return ctx.Err()
}

// try carries out one trial and counts its outcome.
func (w *walk) try(ctx context.Context, dir string, m meeting, full bool) {
	size := small
	if operations[m.op].plan.Consolidate > 0 {
		size = large
	}
	dir, unmount, err := smallDisk(dir, size)
	t := &trial{walk: w, meeting: m, op: operations[m.op], full: full, dir: dir, base: filepath.Join(dir, "storage")}
	t.out.Planned = 1
	if err != nil && w.report.NoDisk == "" {
		t.fault("%v", err)
	} else if err := t.run(ctx); err != nil {
		t.fault("%v", err)
	}
	if err := unmount(); err != nil {
		t.fault("%v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.count(t)
}
