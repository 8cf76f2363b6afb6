package buildyard

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/store/backup"
)

// startUp runs the combined service on free ports until stop is called.
func startUp(t testing.TB, dir string) (s *ControllerService, stop func()) {
	t.Helper()
	return startController(t, dir, true, nil)
}

func startController(
	t testing.TB, dir string, withRegistry bool, more map[string]string,
) (s *ControllerService, stop func()) {
	t.Helper()
	return runController(t, &ControllerService{Stderr: io.Discard, WithRegistry: withRegistry}, dir, more)
}

// runController runs a service on free ports, with more settings, until stop is called.
func runController(
	t testing.TB, s *ControllerService, dir string, more map[string]string,
) (_ *ControllerService, stop func()) {
	t.Helper()
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	cli.AddFlags(fs, config.ControllerTable)
	settings := map[string]string{
		"listen-addr": "127.0.0.1:0", "registry-listen-address": "127.0.0.1:0", "data-dir": filepath.Join(dir, "c"),
		"registry-base-path": filepath.Join(dir, "r"), "log-level": "error", "local-listen-addr": "127.0.0.1:0",
		"disk-alarm": "0B", // the disk of the tests may be nearly full
	}
	maps.Copy(settings, more)
	for flag, value := range settings {
		if err := fs.Set(flag, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.ParseFlags(config.Sources{Flags: fs}); err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

func TestUpServesBothAndKeepsItsData(t *testing.T) {
	dir := t.TempDir()
	s, stop := startUp(t, dir)
	for _, url := range []string{s.URL() + "/livez", s.URL() + "/readyz", s.RegistryURL() + "/livez", s.RegistryURL() +
		"/readyz"} {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s", url, resp.Status)
		}
	}
	client := &apiClient{base: s.URL()}
	var status api.ControllerStatus
	if err := client.get(t.Context(), "/api/v1/status", &status); err != nil {
		t.Fatal(err)
	}
	if status.RegistryStatus != "Running" || status.RegistryAddress != s.RegistryURL() {
		t.Errorf("status = %+v", status)
	}
	token := s.JoinToken()
	second := &ControllerService{Stderr: io.Discard}
	second.settings = s.settings
	second.log = s.log
	if err := second.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "in use by process") {
		t.Errorf("a second controller on the same data: %v, want who holds it", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	stop()
	if stored, err := readStoredToken(filepath.Join(dir, "c")); err != nil || stored != token {
		t.Errorf("the stored token is %q, %v", stored, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "c", tokenFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("token file: %v %v", info.Mode(), err)
	}
	s, stop = startUp(t, dir)
	defer stop()
	if s.JoinToken() != token {
		t.Error("the join token changed with a restart")
	}
}

func TestCommands(t *testing.T) {
	t.Setenv("SVC_LISTEN_ADDR", ":7777")
	for _, tc := range []struct {
		args string
		code int
		want string // in the answer, or in the error
	}{
		{"up --print-config", 0, "SVC_LISTEN_ADDR"},
		{"--help", 0, "buildyard up"},
		{"--version", 0, "-dev"},
		{"version", 0, "platform"},
		{"version -o json", 0, `"commit": ""`},
		{"up --node-active-timeout forever", 2, "SVC_NODE_ACTIVE_TIMEOUT"},
		{"up --colour blue", 2, "unknown flag"},
		{"up here", 2, "unknown command"},
		{"fly", 2, "unknown command"},
		{"node bogus", 2, "unknown command"},
		{"node", 0, "Print or create a join token"},
		{"controller --data-dir " + t.TempDir(), 1, "SVC_REGISTRY is not set"},
		{"node token --data-dir " + t.TempDir(), 1, "join token not found"},
		{"demo", 1, "--guest is required"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := Main(t.Context(), strings.Fields(tc.args), Streams{Out: &out, Err: &errs})
			if text := out.String() + errs.String(); code != tc.code || !strings.Contains(text, tc.want) {
				t.Errorf("exit %d, said %q; want %d and %q", code, text, tc.code, tc.want)
			}
		})
	}
}

// TestPeriodicBackups: with a directory for them, a backup is there soon after the start.
func TestPeriodicBackups(t *testing.T) {
	dir, backups := t.TempDir(), filepath.Join(t.TempDir(), "backups")
	_, stop := startController(t, dir, true, map[string]string{"backup-dir": backups})
	defer stop()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		files, err := filepath.Glob(filepath.Join(backups, "*.backup"))
		if err != nil || time.Now().After(end) {
			t.Fatalf("no backup: %v", err)
		}
		if len(files) > 0 {
			if _, err := backup.VerifyFile(files[0]); err != nil {
				t.Error(err)
			}
			return
		}
	}
}
