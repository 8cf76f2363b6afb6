package buildyard_test

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/buildyard/buildyard/internal/cli/buildyard"
	"github.com/buildyard/buildyard/internal/config"
)

// TestMain lets the scripts run this very binary as the program.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"buildyard": func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := buildyard.Main(ctx, os.Args[1:], buildyard.Streams{Out: os.Stdout, Err: os.Stderr})
		stop()
		os.Exit(code)
	}})
}

// TestScripts runs what testdata tells of the commands that ask a controller. Each
// script has one of its own at $SVC_CONTROLLER.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true, Setup: cloud,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"until": until},
	})
}

// cloud gives a script a controller with its registry.
func cloud(env *testscript.Env) error {
	settings := map[string]string{
		"SVC_LISTEN_ADDR": "127.0.0.1:0", "SVC_REGISTRY_LISTEN_ADDRESS": "127.0.0.1:0", "SVC_LOG_LEVEL": "error",
		"SVC_DATA_DIR": filepath.Join(env.WorkDir, ".controller"), "SVC_REGISTRY_BASE_PATH": filepath.Join(env.WorkDir, ".registry"),
	}
	s := &buildyard.ControllerService{Stderr: io.Discard, WithRegistry: true}
	err := s.ParseFlags(config.Sources{Env: func(key string) (string, bool) {
		v, ok := settings[key]
		return v, ok
	}})
	if err != nil {
		return err
	}
	if err := s.Open(context.Background()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	env.Defer(func() {
		cancel()
		<-done
		_ = s.Close()
	})
	env.Setenv("SVC_CONTROLLER", s.URL())
	env.Setenv("REGISTRY", s.RegistryURL())
	env.Setenv("HOME", env.WorkDir)
	return nil
}

// until runs a command again and again until its output matches: until REGEXP COMMAND...
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until regexp command args...")
	}
	want := regexp.MustCompile(args[0])
	last := ""
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if last = ts.ReadFile("stdout") + ts.ReadFile("stderr"); err == nil && want.MatchString(last) {
			return
		}
	}
	ts.Fatalf("%v never said %s; last:\n%s", args[1:], args[0], last)
}
