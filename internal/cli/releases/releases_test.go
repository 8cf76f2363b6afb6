package releases

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
)

// run runs a command line of these commands and returns its exit code and all output.
func run(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	var out bytes.Buffer
	root := &cobra.Command{Use: "buildyard"}
	root.SetOut(&out)
	root.SetErr(&out)
	controller := func(settingsFile string) (string, error) { return "", errors.New("settings " + settingsFile) }
	root.AddCommand(Commands(cli.Streams{Out: &out, Err: &out}, controller)...)
	return cli.Run(t.Context(), root, args), out.String()
}

func TestReleaseCommands(t *testing.T) {
	dir, keys := t.TempDir(), t.TempDir()
	key, public := filepath.Join(keys, "release.key"), filepath.Join(keys, "release.pub")
	file := filepath.Join(dir, "a.tar.gz")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"release", "keygen", "--out", key}, 0, "public: " + public},
		{[]string{"release", "keygen", "--out", key}, 1, "exists"},
		{[]string{"release", "sign", "--key", key, "--version", "1.2.0-abc", dir}, 0, "signed 1 file as 1.2.0-abc"},
		{[]string{"release", "verify", "--key", public, dir}, 0, "1.2.0-abc"},
		{[]string{"release", "verify", "--key", public, file, "-o", "json"}, 0, `"a.tar.gz"`},
		{[]string{"release", "verify", "--key", public, "--at-least", "1.3.0", dir}, 1, "older than 1.3.0"},
		{[]string{"release", "verify", dir}, 2, `"key" not set`},
		{[]string{"release", "verify", "--key", key, dir}, 1, "read public key"},
	} {
		if code, output := run(t, tt.args...); code != tt.code || !strings.Contains(output, tt.want) {
			t.Errorf("%v: exit %d, want %d with %q:\n%s", tt.args, code, tt.code, tt.want, output)
		}
	}
}

func TestHealthcheck(t *testing.T) {
	ready := http.StatusOK
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("%s was asked", r.URL.Path)
		}
		w.WriteHeader(ready)
	})
	for name, server := range map[string]*httptest.Server{
		"HTTP": httptest.NewServer(handler), "HTTPS": httptest.NewTLSServer(handler),
	} {
		_, address, _ := strings.Cut(server.URL, "://")
		ready = http.StatusOK
		if code, output := run(t, "healthcheck", "--address", address); code != 0 || output != "ready\n" {
			t.Errorf("%s: exit %d: %s", name, code, output)
		}
		ready = http.StatusServiceUnavailable
		code, output := run(t, "healthcheck", "--address", address)
		if code != cli.ExitUnreachable || !strings.Contains(output, "503") || strings.Count(output, "\n") != 1 {
			t.Errorf("%s, not ready: exit %d: %s", name, code, output)
		}
		server.Close()
		if code, _ := run(t, "healthcheck", "--address", address); code != cli.ExitUnreachable {
			t.Errorf("%s, ended: exit %d", name, code)
		}
	}
	if code, output := run(t, "healthcheck", "--config", "a.conf"); code != cli.ExitUsage ||
		!strings.Contains(output, "settings a.conf") {
		t.Errorf("without an address: exit %d: %s", code, output)
	}
	if code, _ := run(t, "healthcheck", "--address", "here"); code != cli.ExitUsage {
		t.Errorf("an invalid address: exit %d", code)
	}
}

func TestLocalAddress(t *testing.T) {
	for listen, want := range map[string]string{
		":8090": "127.0.0.1:8090", "0.0.0.0:1": "127.0.0.1:1", "[::]:2": "127.0.0.1:2", "[::1]:3": "[::1]:3",
		"10.0.0.1:4": "10.0.0.1:4",
	} {
		if got, err := localAddress(listen); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", listen, got, err, want)
		}
	}
}
