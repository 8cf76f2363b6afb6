// Package clitest provides tests with imitations of hypervisors' command lines, which are programs of
// their own in test/fakes: it builds one, and ends the processes that a test has left.
//
// It is test code that is imported by tests only. The programs are built without the race detector,
// because each of their calls would last a second longer with it.
//
// Invariant: it ends only processes whose environment names a directory of the test.
package clitest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const endTimeout = time.Minute // of the processes of a test, which end within a second on an idle machine

// Program is the imitation of one command line. It is built at the first use.
type Program struct {
	name string // of the directory in test/fakes and of the program

	build sync.Once
	dir   string
	err   error
}

// New returns the program in test/fakes/NAME.
func New(name string) *Program { return &Program{name: name} }

// Path builds the program, and returns its path.
func (p *Program) Path(t testing.TB) string {
	t.Helper()
	p.build.Do(func() {
		if p.dir, p.err = os.MkdirTemp("", "fake-"+p.name+"-"); p.err != nil {
			return
		}
		const sources = "github.com/buildyard/buildyard/test/fakes/"
		cmd := exec.Command("go", "build", "-trimpath", "-o", p.path(), sources+p.name) //nolint:noctx // for all tests
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			p.err = fmt.Errorf("build %s: %w: %s", p.name, err, out)
		}
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.path()
}

func (p *Program) path() string { return filepath.Join(p.dir, p.name) }

// Main runs the tests of a package that uses the program, removes the program, and ends the process.
func (p *Program) Main(m *testing.M) {
	code := m.Run()
	if p.dir != "" {
		if err := os.RemoveAll(p.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// WriteScript writes an executable shell script. Another process writes it: a descriptor that this one has open for
// writing would be inherited by the programs that parallel tests start, and the script could not be executed.
func WriteScript(t testing.TB, path, text string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `cat >"$0" && chmod 700 "$0"`, path)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("write %s: %v: %s", path, err, out)
	}
}

// KillAll kills the processes whose environment names a directory or something in it, and waits for
// their end.
func KillAll(t testing.TB, dir string) {
	t.Helper()
	for end := time.Now().Add(endTimeout); ; time.Sleep(20 * time.Millisecond) {
		pids := processesOf(dir)
		if len(pids) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("processes %v of %s have not ended within %s", pids, dir, endTimeout)
			return
		}
		for _, pid := range pids {
			if p, err := os.FindProcess(pid); err == nil {
				if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
					t.Error(err)
				}
			}
		}
	}
}

// processesOf returns the IDs of the processes whose environment names a directory.
func processesOf(dir string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")) // empty: it has ended
		if slices.ContainsFunc(strings.Split(string(env), "\x00"), func(v string) bool { return namesPath(v, dir) }) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// namesPath reports whether a variable of an environment, as KEY=value, names a directory.
func namesPath(variable, dir string) bool {
	_, value, _ := strings.Cut(variable, "=")
	return slices.ContainsFunc(filepath.SplitList(value), func(path string) bool {
		return path == dir || strings.HasPrefix(path, dir+"/")
	})
}
