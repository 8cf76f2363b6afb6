package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The results of a mutant.
const (
	noticed    = "noticed"
	timedOut   = "timed out" // counts as detected
	unnoticed  = "unnoticed"
	notReached = "not reached" // no test reaches the place; counts as undetected
)

// maxData limits the memory of a test process: a mutant may remove a bound.
const maxData = 4 << 30

// binary is the compiled test binary of a package with every mutant inside.
type binary struct {
	path, dir string // the directory of the package, where its tests run
	temp      string
	tests     []*test
	jobs      int
	grace     time.Duration // tests may take ten times as long with a mutant as without, and this
}

// test is a top-level test, fuzz test or example, with the mutants that it reaches.
type test struct {
	name    string
	took    time.Duration
	reached []byte // by mutant; 1 is reached
}

// compile creates the test binary of a package in temp, from its files with these texts.
func compile(ctx context.Context, src *source, texts map[string]string, temp string) (*binary, error) {
	for path, text := range texts {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	b := &binary{path: filepath.Join(temp, "test"), dir: src.dir, temp: temp}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-vet=off", "-o", b.path, ".")
	cmd.Dir = src.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling the tests of %s: %w\n%s", src.path, err, out)
	}
	return b, nil
}

// list finds the tests of the binary.
func (b *binary) list(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, b.path, "-test.list", ".")
	cmd.Dir = b.dir
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("listing tests: %w", err)
	}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example") {
			b.tests = append(b.tests, &test{name: name})
		}
	}
	if len(b.tests) == 0 {
		return errors.New("the package has no tests")
	}
	return nil
}

// record runs every test alone without a mutant, and records its time and the mutants it reaches.
func (b *binary) record(ctx context.Context, mutants int) error {
	if err := b.list(ctx); err != nil {
		return err
	}
	err := parallel(b.jobs, b.tests, func(t *test) error {
		file := filepath.Join(b.temp, t.name+".reached")
		var output string
		for range 3 { // one that fails occasionally reports nothing about mutants
			if err := os.WriteFile(file, make([]byte, mutants+1), 0o600); err != nil {
				return err
			}
			began := time.Now()
			good, out := b.run(ctx, []string{t.name}, 10*time.Minute, "BUILDYARD_MUTANT_REACHED="+file)
			t.took, output = time.Since(began), out
			if good == unnoticed {
				var err error
				t.reached, err = os.ReadFile(file)
				return err
			}
		}
		return fmt.Errorf("%s fails without a mutant:\n%s", t.name, output)
	})
	slices.SortFunc(b.tests, func(x, y *test) int { return int(x.took - y.took) })
	return err
}

// try runs the tests that reach a mutant with the mutant enabled, the fastest first.
func (b *binary) try(ctx context.Context, m *mutant) error {
	m.Result = notReached
	var names []string
	var sum time.Duration
	limit := time.Second
	flush := func() {
		if len(names) > 0 {
			m.Result, _ = b.run(ctx, names, 10*sum+b.grace, fmt.Sprintf("BUILDYARD_MUTANT=%d", m.ID))
		}
		names, sum, limit = nil, 0, 4*limit
	}
	for _, t := range b.tests {
		if t.reached[m.ID] == 0 {
			continue
		}
		names, sum = append(names, t.name), sum+t.took
		if sum >= limit {
			if flush(); m.Result != unnoticed {
				break
			}
		}
	}
	if flush(); ctx.Err() != nil {
		return ctx.Err()
	}
	return nil
}

// run runs tests in a separate process group, with a temporary directory that is removed afterwards.
func (b *binary) run(ctx context.Context, names []string, limit time.Duration, env string) (result, output string) {
	temp, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return err.Error(), ""
	}
	defer os.RemoveAll(temp)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	const bounded = `ulimit -d "$1" && shift && exec "$@"`
	cmd := exec.CommandContext(ctx, "sh", "-c", bounded, "sh", fmt.Sprint(maxData>>10),
		b.path, "-test.run", "^("+strings.Join(names, "|")+")$", "-test.failfast", "-test.timeout", "0")
	cmd.Dir, cmd.Env = b.dir, append(os.Environ(), "TMPDIR="+temp, env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what a failed test left behind
	}
	switch {
	case ctx.Err() != nil:
		return timedOut, out.String()
	case err != nil:
		return noticed, out.String()
	}
	return unnoticed, ""
}

// parallel calls do for each of all, with jobs calls at a time, and returns the first error.
func parallel[T any](jobs int, all []T, do func(T) error) error {
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	todo := make(chan T)
	for range jobs {
		wg.Go(func() {
			for one := range todo {
				if err := do(one); err != nil {
					once.Do(func() { first = err })
				}
			}
		})
	}
	for _, one := range all {
		todo <- one
	}
	close(todo)
	wg.Wait()
	return first
}
