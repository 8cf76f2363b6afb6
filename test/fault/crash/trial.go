package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
)

// trial is one operation that is cut at one of its steps, by a kill or by a full disk.
type trial struct {
	*walk
	meeting
	op   operation
	full bool
	dir  string // on a separate file system
	base string // storage below dir

	out      Outcome
	problems []string
}

func (t *trial) where() string {
	what := "killed at"
	if t.full {
		what = "disk full at"
	}
	return fmt.Sprintf("%s, %s %s (time %d)", t.op.name, what, t.step, t.nth)
}

func (t *trial) problem(format string, args ...any) {
	t.problems = append(t.problems, t.where()+": "+fmt.Sprintf(format, args...))
}

// fault records a problem that is neither a loss nor a leftover.
func (t *trial) fault(format string, args ...any) {
	t.out.Wrong++
	t.problem(format, args...)
}

// filler is the file that fills the file system of a storage.
func filler(base string) string { return filepath.Join(filepath.Dir(base), "filler") }

// run cuts the operation and looks at what is left.
func (t *trial) run(ctx context.Context) error {
	if err := os.CopyFS(t.base, os.DirFS(t.snapshot(t.meeting.op))); err != nil {
		return err
	}
	acked, err := t.cut(ctx)
	if err != nil {
		return err
	}
	t.out.Tried++
	if err := os.RemoveAll(filler(t.base)); err != nil {
		return err
	}
	t.check(ctx, "behind it")
	if err := t.goOn(ctx, acked); err != nil {
		return err
	}
	// at rest, since pulls keep layers for a while
	if _, err := t.tool(ctx, "gc", "--empty-trash", "--yes"); err != nil {
		return err
	}
	t.check(ctx, "in the end")
	t.named()
	return nil
}

// cut begins the operation with a registry that ends, or whose disk fills up, at the step, and reports whether it was
// acknowledged nevertheless.
func (t *trial) cut(ctx context.Context) (acked bool, err error) {
	l := t.op.launch
	l.plan.Step, l.plan.Nth = t.step, t.nth
	if t.full {
		l.plan.Fill, l.plan.Reserve, l.patience = filler(t.base), reserveSize, soonFull
	}
	s, err := t.start(ctx, t.base, l)
	if s == nil {
		return false, err
	}
	if err == nil {
		err = t.op.do(ctx, t.walk, s)
		acked = err == nil
	}
	if t.full {
		return acked, t.checkFull(s, err)
	}
	if acked {
		_ = s.end() // some steps come at the end
	}
	if !s.died(ctx) {
		return acked, errors.Join(errors.New("the process did not come to the step"), err, s.end())
	}
	return acked, nil
}

// checkFull ends a registry whose disk is full: it must have reported what it could not do.
func (t *trial) checkFull(s *server, said error) error {
	running := s.Running()
	if err := s.end(); err != nil {
		return err
	}
	if _, err := os.Stat(filler(t.base)); err != nil {
		return errors.Join(errors.New("the process did not come to the step"), said)
	}
	switch {
	case said == nil, t.op.itself && errors.Is(said, errNotYet):
	case !running && strings.Contains(s.Tail(), "no space left"): // it could not start, and says why
	case !strings.Contains(said.Error(), blob.DiskFullMessage):
		t.fault("the error does not say that the disk is full: %v", said)
	}
	return nil
}

// goOn starts the registry again, holds it against what was acknowledged, and carries the operation to its end.
func (t *trial) goOn(ctx context.Context, acked bool) (err error) {
	s, err := t.start(ctx, t.base, t.op.launch)
	if s != nil {
		defer func() { err = errors.Join(err, s.end()) }()
	}
	if err != nil {
		return err
	}
	before, after := none, t.op.want
	if t.meeting.op > 0 {
		before = operations[t.meeting.op-1].want
	}
	state, err := s.state(ctx)
	if err != nil {
		return err
	}
	must := common(tagsOf(before), tagsOf(after))
	if acked {
		must = tagsOf(after)
	}
	t.out.Acknowledged += len(must)
	for _, tag := range must {
		if err := t.pull(ctx, s.client, tag, t.dir); err != nil {
			t.out.Lost++
			t.problem("%v", err)
		}
	}
	switch {
	case state == after:
		t.out.After++
	case state == before && !acked:
		t.out.Before++
	default:
		t.fault("the template is %q; it was %q and should have become %q", state, before, after)
	}
	return t.repeat(ctx, s, state)
}

// repeat carries out what was cut, unless it had happened, and looks at all versions.
func (t *trial) repeat(ctx context.Context, s *server, state string) error {
	if state != t.op.want || t.op.itself || t.op.prepare != nil {
		if err := t.op.do(ctx, t.walk, s); err != nil {
			return fmt.Errorf("once more: %w", err)
		}
	}
	state, err := s.state(ctx)
	if err != nil {
		return err
	}
	if state != t.op.want {
		t.fault("in the end the template is %q, not %q", state, t.op.want)
	}
	for _, tag := range tagsOf(t.op.want) {
		if err := t.pull(ctx, s.client, tag, t.dir); err != nil {
			t.fault("in the end %v", err)
		}
	}
	return nil
}

// tool runs a command on the storage at rest and returns its output. A reported loss is not a
// failure of it.
func (t *trial) tool(ctx context.Context, args ...string) ([]byte, error) {
	args = append([]string{"registry"}, append(args, "--json", "--base-path", t.base)...)
	raw, err := exec.CommandContext(ctx, t.program, args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 && len(raw) > 0 {
		err = nil
	}
	return raw, err
}

// check runs "buildyard registry check" on the storage at rest. What the test itself broke is left out.
func (t *trial) check(ctx context.Context, when string) {
	raw, err := t.tool(ctx, "check", "--deep")
	if err != nil && when == "behind it" && t.notCreated(err) {
		return
	}
	if err != nil {
		t.fault("check %s: %v", when, err)
		return
	}
	var report api.RegistryCheck
	if err := json.Unmarshal(raw, &report); err != nil {
		t.fault("check %s: %v: %s", when, err, raw)
		return
	}
	for _, f := range report.Findings {
		switch {
		case f.Template == broken || f.Template == hollow:
		case f.Loss:
			t.out.Missing++
			t.problem("check %s: %s %s: %s", when, f.Template, f.Layer, f.Problem)
		case when == "in the end":
			t.fault("check %s: %s %s: %s", when, f.Template, f.Layer, f.Problem)
		}
	}
}

// notCreated reports whether the first start was cut before it made the storage, and the command says so.
func (t *trial) notCreated(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	_, missing := os.Stat(filepath.Join(t.base, layout.TemplatesDir))
	return ok && errors.Is(missing, os.ErrNotExist) &&
		strings.Contains(string(exit.Stderr), "is not a registry storage")
}

// named looks for layer files that no version names, when everything that nothing needs was collected.
func (t *trial) named() {
	list := map[string]bool{}
	for dir, text := range map[string]string{"images_dir": "images", "state_file_dir": "state_files"} {
		lists, err := filepath.Glob(filepath.Join(t.base, "vm_dir", "*", "*", text))
		if err != nil {
			t.fault("%v", err)
		}
		for _, path := range lists {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.fault("%v", err)
			}
			for name := range strings.FieldsSeq(string(raw)) {
				list[filepath.Join(dir, name)] = true
			}
		}
		files, err := os.ReadDir(filepath.Join(t.base, dir))
		if err != nil {
			t.fault("%v", err)
		}
		for _, f := range files {
			if name := filepath.Join(dir, f.Name()); !list[name] {
				t.out.Orphans++
				t.problem("no version names %s", name)
			}
		}
	}
}
