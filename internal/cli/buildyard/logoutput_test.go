package buildyard

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/internal/agent/home"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
	"github.com/buildyard/buildyard/internal/config"
)

// awaitLog waits until a service's log in a directory has a text.
func awaitLog(t *testing.T, dir, service, text string) {
	t.Helper()
	var all string
	for begun := time.Now(); time.Since(begun) < 20*time.Second; time.Sleep(20 * time.Millisecond) {
		all = ""
		files, _ := filepath.Glob(filepath.Join(dir, service, "*.log"))
		for _, name := range files {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all += string(raw)
		}
		if strings.Contains(all, text) {
			return
		}
	}
	t.Fatalf("the log of %s in %s lacks %q:\n%s", service, dir, text, all)
}

// TestLogsComeTogether: controller, registry and a node write to the central logs, and where they are asked to into
// files of their own.
func TestLogsComeTogether(t *testing.T) {
	dir := t.TempDir()
	own, central := filepath.Join(dir, "logs"), filepath.Join(dir, "r", "files", "central-logs")
	s, stop := startController(t, dir, true, map[string]string{"log-level": "info", "log-dir": own, "enable-central-logging": "true"})
	at, err := home.At(filepath.Join(dir, "node"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = buildnode.Join(t.Context(), buildnode.JoinOptions{Home: at, Controller: s.URL(), Token: s.JoinToken(), Host: "192.0.2.7", Reserve: "64MB", Capacity: 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	node := make(chan int, 1)
	go func() {
		node <- buildnode.Main(ctx, []string{"run", "--driver", "sim", "--data-dir", at.Dir()}, buildnode.Streams{Out: io.Discard, Err: io.Discard})
	}()
	for _, dir := range []string{own, central} {
		awaitLog(t, dir, "controller", `"msg":"controller is ready"`)
		awaitLog(t, dir, "registry", `"msg":"registry is ready"`)
	}
	awaitLog(t, central, "node", ` 192.0.2.7 {"time":"`)
	awaitLog(t, central, "node", `"msg":"agent runs"`)
	cancel()
	if code := <-node; code != 0 {
		t.Errorf("the node ends with %d", code)
	}
	stop()
	if nodes, _ := filepath.Glob(own + "/node/*"); len(nodes) > 0 {
		t.Error("the node's log is among the controller's own")
	}
}

// TestLogsOfAControllerAlone go to its registry over the wire.
func TestLogsOfAControllerAlone(t *testing.T) {
	dir := t.TempDir()
	fs := pflag.NewFlagSet("registry", pflag.ContinueOnError)
	cli.AddFlags(fs, config.RegistryTable)
	for flag, value := range map[string]string{"listen-addr": "127.0.0.1:0", "base-path": dir, "log-level": "info", "enable-central-logging": "true"} {
		if err := fs.Set(flag, value); err != nil {
			t.Fatal(err)
		}
	}
	r := &RegistryService{Stderr: io.Discard}
	if err := r.ParseFlags(config.Sources{Flags: fs}); err != nil {
		t.Fatal(err)
	}
	if err := r.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	_, stop := startController(t, t.TempDir(), false, map[string]string{"registry": r.URL(), "log-level": "info", "enable-central-logging": "true"})
	central := filepath.Join(dir, "files", "central-logs")
	awaitLog(t, central, "controller", `"msg":"controller is ready"`)
	awaitLog(t, central, "registry", `"msg":"registry is ready"`)
	stop()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestLogDirThatCannotBe fails the start with one line that names the setting.
func TestLogDirThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	cli.AddFlags(fs, config.ControllerTable)
	if err := fs.Set("log-dir", file); err != nil {
		t.Fatal(err)
	}
	s := &ControllerService{Stderr: io.Discard}
	if err := s.ParseFlags(config.Sources{Flags: fs}); err == nil || !strings.HasPrefix(err.Error(), "SVC_LOG_DIR: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}
