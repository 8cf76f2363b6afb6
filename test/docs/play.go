package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

var (
	//go:embed prelude.sh
	prelude string
	//go:embed isolate.sh
	isolate string
)

// sandbox runs pages.
type sandbox struct {
	root     string   // of the repository
	env      []string // of every page
	isolated bool     // pages have their own namespaces
	reason   string   // why they do not
}

// newSandbox finds out whether pages can be isolated on this machine. dir is for its own files.
func newSandbox(ctx context.Context, programs rig.Programs, dir string) (*sandbox, error) {
	s := &sandbox{root: programs.Root()}
	for _, e := range os.Environ() {
		key, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(key, "SVC_") && !strings.HasPrefix(key, "XDG_") && key != "HOME" && key != "PATH" {
			s.env = append(s.env, e)
		}
	}
	for _, key := range []string{"GOMODCACHE", "GOCACHE"} { // HOME is another
		value, err := rig.Output(ctx, s.root, "go", "env", key)
		if err != nil {
			return nil, err
		}
		s.env = append(s.env, key+"="+value)
	}
	bin := filepath.Dir(programs.Path("buildyard"))
	s.env = append(s.env, "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"), "REPO="+s.root)

	if !maySeparate() {
		s.reason = "this is not root on Linux"
		return s, nil
	}
	s.isolated = true
	if err := s.prepare(&page{}, dir); err != nil {
		return nil, err
	}
	if err := s.bash(ctx, dir, time.Minute); err != nil {
		s.isolated, s.reason = false, err.Error()
	}
	return s, ctx.Err()
}

func (s *sandbox) describe() string {
	if s.isolated {
		return "each page in its own namespaces"
	}
	return "pages share this machine: " + s.reason
}

// play runs the blocks of a page and reports each.
func (s *sandbox) play(ctx context.Context, r *report, p *page, dir string, limit time.Duration) error {
	if err := s.prepare(p, dir); err != nil {
		return err
	}
	began := time.Now()
	ended := s.bash(ctx, dir, limit)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	marks, err := readMarks(filepath.Join(dir, "marks"))
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "%s: %.1f s\n", p.path, time.Since(began).Seconds())
	for i, b := range p.blocks {
		b.report(r, p.path, marks[i], filepath.Join(dir, strconv.Itoa(i)+".out"), ended)
	}
	return nil
}

// prepare writes the script of a page.
func (s *sandbox) prepare(p *page, dir string) error {
	for _, d := range []string{"home", "page", "layers"} {
		if err := rig.MakeDir(filepath.Join(dir, d)); err != nil {
			return err
		}
	}
	var b strings.Builder
	b.WriteString(prelude)
	for i, block := range p.blocks {
		if block.skip == "" {
			fmt.Fprintf(&b, "docs_test_begin %d\n%s\ndocs_test_end %[1]d\n", i, block.text)
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "script"), []byte(b.String()), 0o644),
		os.WriteFile(filepath.Join(dir, "marks"), nil, 0o644))
}

// bash runs the script of a page and ends everything that it started. It returns why the page
// ended, nil at its end.
func (s *sandbox) bash(ctx context.Context, dir string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	script := filepath.Join(dir, "script")
	args := []string{script}
	if s.isolated {
		args = []string{"-c", isolate, "bash", script}
	}
	cmd := exec.Command("bash", args...) //nolint:noctx // the whole group is ended, not the shell alone
	cmd.SysProcAttr = attributes(s.isolated)
	cmd.Dir = filepath.Join(dir, "page")
	cmd.Env = slices.Concat(s.env, []string{"HOME=" + filepath.Join(dir, "home"), "DOCS_TEST=" + dir})
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}

	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	late := false
	select {
	case err = <-done:
	case <-ctx.Done():
		late = true
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the group may have no process left
	if late {
		err = fmt.Errorf("not done after %s: %w", limit, <-done)
	}
	if err != nil {
		said, _ := os.ReadFile(filepath.Join(dir, "log")) // what is not of a block
		err = fmt.Errorf("%w %s", err, strings.TrimSpace(string(said)))
	}
	return err
}

// mark is how far a block came.
type mark struct {
	began, ended float64 // seconds; 0: not
}

func readMarks(file string) (map[int]mark, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	marks := map[int]mark{}
	for line := range strings.Lines(string(raw)) {
		var what string
		var i int
		var at float64
		if _, err := fmt.Sscan(line, &what, &i, &at); err != nil {
			return nil, fmt.Errorf("marks of the blocks: %q: %w", line, err)
		}
		m := marks[i]
		if what == "begin" {
			m.began = at
		} else {
			m.ended = at
		}
		marks[i] = m
	}
	return marks, nil
}

// report reports one block.
func (b block) report(r *report, path string, m mark, output string, ended error) {
	name := fmt.Sprintf("%s:%d", path, b.line)
	if b.hidden {
		if m.ended == 0 {
			r.fail("%s: setup: %s", name, failure(m, output, ended))
		}
		return
	}
	r.blocks++
	said, _ := os.ReadFile(output) // a skipped block has none
	switch {
	case b.skip != "":
		r.skip("%s: %s", name, b.skip)
	case m.ended == 0:
		r.fail("%s: %s", name, failure(m, output, ended))
	case b.output != nil && !b.output.Match(said):
		r.fail("%s: the output does not match %q:\n%s", name, b.output, tail(string(said)))
	default:
		r.pass("%s: %d lines, %.1f s", name, strings.Count(b.text, "\n")+1, m.ended-m.began)
	}
}

// failure describes a block that did not end.
func failure(m mark, output string, ended error) string {
	if m.began == 0 {
		return "not run, since an earlier block failed"
	}
	said, _ := os.ReadFile(output) // without it there is nothing to show
	return fmt.Sprintf("%v\n%s", cmp.Or(ended, errors.New("the shell ended")), tail(string(said)))
}

// tail returns the last lines of an output, indented.
func tail(text string) string {
	const last = 20
	lines := strings.Split(strings.TrimSpace(text), "\n")
	lines = lines[max(0, len(lines)-last):]
	return "          | " + strings.Join(lines, "\n          | ")
}
