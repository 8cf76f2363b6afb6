package inject_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/buildyard/buildyard/internal/tools/failpoint/inject"
)

// The child process of a test announces steps as its plan requires.
func TestMain(m *testing.M) {
	if os.Getenv(inject.Env) == "" {
		os.Exit(m.Run())
	}
	p, err := inject.FromEnvironment()
	if err != nil {
		os.Exit(3)
	}
	hook := p.Hook()
	for _, step := range []string{"a.sync", "b.rename", "a.sync", "c.remove"} {
		hook(step)
	}
	os.Exit(0)
}

func TestKillAtAStep(t *testing.T) {
	for name, c := range map[string]struct {
		step  string
		nth   int
		trace string
		dies  bool
	}{
		"first":   {"a.sync", 1, "a.sync", true},
		"second":  {"a.sync", 2, "a.sync b.rename a.sync", true},
		"never":   {"a.sync", 3, "a.sync b.rename a.sync c.remove", false},
		"nothing": {"", 0, "a.sync b.rename a.sync c.remove", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := inject.Plan{Trace: filepath.Join(t.TempDir(), "trace"), Step: c.step, Nth: c.nth}
			setting, err := p.Setting()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), setting)
			err = cmd.Run()
			exit, failed := errors.AsType[*exec.ExitError](err)
			if failed != c.dies || failed && exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Errorf("it ended with %v", err)
			}
			raw, err := os.ReadFile(p.Trace)
			if got := strings.Join(strings.Fields(string(raw)), " "); err != nil || got != c.trace {
				t.Errorf("it came to %q, %v", got, err)
			}
		})
	}
}

func TestBadPlan(t *testing.T) {
	t.Setenv(inject.Env, "{")
	if _, err := inject.FromEnvironment(); err == nil {
		t.Error("half a plan is taken")
	}
}
