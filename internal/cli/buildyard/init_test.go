package buildyard

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
)

// runInit runs the command init and returns what it printed.
func runInit(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := Main(t.Context(), append([]string{"init"}, args...), Streams{Out: &out, Err: &errs}); code != 0 {
		t.Fatalf("init %v: exit %d, %s", args, code, errs.String())
	}
	return out.String()
}

// contents returns the files beneath a directory, and fails where one is readable by others.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if e.Type().IsRegular() {
			raw, err := os.ReadFile(path)
			all[path] = string(raw)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestInitThenUp: what init creates switches authentication and HTTPS on for a service that is
// given only the data directory.
func TestInitThenUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	said := runInit(t, "--data-dir", dir, "--tls", "--name", "build.example,192.0.2.7")
	first := contents(t, dir)
	token := strings.TrimSpace(first[filepath.Join(dir, rootTokenFile)])
	if len(token) < 40 || strings.Contains(said, token) {
		t.Errorf("the token is %q, said was %s", token, said)
	}
	s := startAsCommand(t, dir)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(first[filepath.Join(dir, tlsDir, authorityFile)])) {
		t.Fatal("no authority")
	}
	for name, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "build.example": true, "192.0.2.7": true, "evil.example": false,
	} {
		a := asks{t, &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12},
		}}}
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL()+"/api/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := a.http.Do(r)
		if (err == nil) != want {
			t.Errorf("as %s: %v", name, err)
		}
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("without a credential: %s", resp.Status)
		}
		if code := a.code("GET", s.URL()+"/api/v1/status", "Authorization",
			"Basic "+base64.StdEncoding.EncodeToString([]byte("root:"+token))); code != 200 {
			t.Errorf("with the token: %d", code)
		}
	}
}

// startAsCommand runs the service as "buildyard up" does, on a data directory and free ports.
func startAsCommand(t *testing.T, dir string) *ControllerService {
	t.Helper()
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	cli.AddFlags(fs, config.ControllerTable)
	for flag, value := range map[string]string{
		"data-dir": dir, "registry-base-path": filepath.Join(dir, "r"), "listen-addr": "127.0.0.1:0",
		"registry-listen-address": "127.0.0.1:0", "log-level": "error",
	} {
		if err := fs.Set(flag, value); err != nil {
			t.Fatal(err)
		}
	}
	src, err := addInitSettings(config.ControllerTable, config.Sources{Flags: fs})
	if err != nil {
		t.Fatal(err)
	}
	s := &ControllerService{Stderr: io.Discard, WithRegistry: true}
	if err := s.ParseFlags(src); err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := startBackground(context.Background(), s.Run)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestInitAgain: a second run changes nothing, and one that asks for more adds to it.
func TestInitAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for _, left := range []string{rootTokenFile, initSettingsFile} { // by a run that was killed
		if err := errors.Join(os.MkdirAll(dir, 0o700),
			os.WriteFile(filepath.Join(dir, left+".part"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if said := runInit(t, "--data-dir", dir); strings.Contains(said, "kept") || strings.Contains(said, "certificate") {
		t.Errorf("the first run said %s", said)
	}
	first := contents(t, dir)
	if said := runInit(t, "--data-dir", dir); strings.Contains(said, "created ") {
		t.Errorf("the second run said %s", said)
	}
	again := contents(t, dir)
	if len(first) != 2 || len(again) != 2 {
		t.Errorf("%d files, then %d", len(first), len(again))
	}
	for path, text := range first {
		if again[path] != text {
			t.Errorf("%s changed", path)
		}
	}
	settings := filepath.Join(dir, initSettingsFile)
	own := first[settings] + "SVC_INSTANCE_TIME_OUT=2m\nSVC_ENABLE_API_KEYS=false\n"
	own = strings.Replace(own, "SVC_ENABLE_API_KEYS=true\n", "", 1)
	if err := os.WriteFile(settings, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SVC_LISTEN_ADDR", ":18090")
	if said := runInit(t, "--data-dir", dir, "--tls"); !strings.Contains(said,
		"export SVC_CONTROLLER=https://127.0.0.1:18090\n") {
		t.Errorf("said was %s", said)
	}
	if got := contents(t, dir)[settings]; !strings.HasPrefix(got, own) ||
		!strings.Contains(got[len(own):], "SVC_USE_HTTPS=true") {
		t.Errorf("the settings are %s", got)
	}
}

// TestInitRefuses: what others can read is not used, and is left as it is.
func TestInitRefuses(t *testing.T) {
	open := t.TempDir()
	if err := os.WriteFile(filepath.Join(open, rootTokenFile), []byte("a token of long ago\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		mode os.FileMode
		want string
	}{
		{0o750, "data directory is accessible by other users (0750); run: chmod 700 " + open},
		{0o700, "root token " + filepath.Join(open, rootTokenFile) +
			": file is accessible by other users (mode 0644): run chmod 600"},
	} {
		if err := os.Chmod(open, tc.mode); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{
			"init", "--data-dir", open,
		}, {
			"up", "--enable-auth", "--data-dir", open, "--listen-addr", "127.0.0.1:0", "--registry-listen-address",
			"127.0.0.1:0", "--registry-base-path", t.TempDir(),
		}} {
			if args[0] == "up" && tc.mode == 0o700 {
				t.Setenv("SVC_ROOT_TOKEN_FILE", filepath.Join(open, rootTokenFile))
				tc.want = "SVC_ROOT_TOKEN_FILE=\"" + filepath.Join(open, rootTokenFile) +
					"\": file is accessible by other users (mode 0644): run chmod 600"
			} else if args[0] == "up" {
				args = append(args, "--root-token", rootToken)
			}
			var out, errs bytes.Buffer
			code := Main(t.Context(), args, Streams{Out: &out, Err: &errs})
			if code == 0 || !strings.Contains(errs.String(), tc.want) {
				t.Errorf("%v: exit %d, %s, want %s", args, code, errs.String(), tc.want)
			}
		}
	}
	if raw, err := os.ReadFile(filepath.Join(open, rootTokenFile)); err != nil ||
		string(raw) != "a token of long ago\n" {
		t.Errorf("the token is %q, %v", raw, err)
	}
	var out, errs bytes.Buffer
	if code := Main(t.Context(), []string{"init", "--data-dir", t.TempDir(), "--name", "x"},
		Streams{Out: &out, Err: &errs}); code != cli.ExitUsage ||
		!strings.Contains(errs.String(), "--name requires --tls") {
		t.Errorf("exit %d, %s", code, errs.String())
	}
}

// TestInitKeepsNoBrokenPair: a certificate that does not match its key is not kept, and the error
// names what to do.
func TestInitKeepsNoBrokenPair(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	runInit(t, "--data-dir", dir, "--tls")
	in := func(name string) string { return filepath.Join(dir, tlsDir, name) }
	authority, err := os.ReadFile(in(authorityKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{serverCertFile: nil, serverKeyFile: authority} {
		kept, err := os.ReadFile(in(name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(in(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		code := Main(t.Context(), []string{"init", "--data-dir", dir, "--tls"}, Streams{Out: &out, Err: &errs})
		if want := in(serverCertFile) + " and " + in(serverKeyFile); code == 0 ||
			!strings.Contains(errs.String(), want) || !strings.Contains(errs.String(), "remove both") {
			t.Errorf("with another %s: exit %d, %s", name, code, errs.String())
		}
		if err := os.WriteFile(in(name), kept, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Remove(in(serverCertFile)), os.Remove(in(serverKeyFile))); err != nil {
		t.Fatal(err)
	}
	if said := runInit(t, "--data-dir", dir, "--tls"); !strings.Contains(said, "created  certificate") {
		t.Errorf("said was %s", said)
	}
}
