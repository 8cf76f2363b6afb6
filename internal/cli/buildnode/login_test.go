package buildnode

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
	"github.com/buildyard/buildyard/internal/rest/servicetest"
)

// guarded is a registry with authentication and the API key ci, whose private key is in a file.
func guarded(t *testing.T, dir string) (s *servicetest.Service, url, keyFile string) {
	t.Helper()
	core, err := registry.Open(t.Context(), registry.Options{Base: filepath.Join(dir, "store"), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	s = servicetest.New(servicetest.Options{
		Service: farm.ServiceRegistry, Next: rest.Handler(registryrest.Routes(core), slog.New(slog.DiscardHandler)),
	})
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.Close()
		if err := core.Close(); err != nil {
			t.Error(err)
		}
	})
	private, err := s.Add("ci")
	if err != nil {
		t.Fatal(err)
	}
	return s, server.URL, private0600(t, dir, "ci.key", private)
}

func private0600(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestRegistryKnowsItsCallers pushes and pulls with an API key and as the root user, with a session
// that ends in between, and gets advice when it is not authenticated.
func TestRegistryKnowsItsCallers(t *testing.T) {
	dir := t.TempDir()
	s, url, key := guarded(t, dir)
	root := private0600(t, dir, "root.token", servicetest.Root)
	wrong := private0600(t, dir, "wrong.token", "another root token")
	raw, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	data := filepath.Join(dir, "data")
	run := func(code int, want string, args ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		got := Main(t.Context(), append([]string{"--data-dir", data}, args...),
			Streams{In: strings.NewReader(string(raw)), Out: &out, Err: &errs})
		text := out.String() + errs.String()
		if got != code || !strings.Contains(text, want) {
			t.Errorf("%v: %d %s; want %d, %q", args, got, text, code, want)
		}
		said.WriteString(text)
	}
	run(1,
		"Authentication Required: set an API key (--api-key-id and --api-key-file), the root token (--token-file) "+
			"or a "+
			"certificate", "registry", "list", "-r", url)
	run(0, "[]", "registry", "list", "-r", url, "-o", "json", "--token-file", root)
	run(1, "Authentication Required: check that the root token is that of this registry", "registry", "list", "-r",
		url, "--token-file", wrong)
	run(0, "[]", "registry", "list", "-r", url, "-o", "json", "--api-key-id", "ci", "--api-key", key)
	run(0, "[]", "registry", "list", "-r", url, "-o", "json", "--api-key-id", "ci", "--api-key-file", "-")
	run(0, "[]", "registry", "list", "-r", url, "-o", "json", "--api-key-id", "ci", "--api-key",
		strings.TrimSpace(string(raw)))
	run(1, `does not accept the API key "other"`, "registry", "list", "-r", url, "--api-key-id", "other", "--api-key",
		key)
	run(2, "mutually exclusive", "registry", "list", "-r", url, "--api-key-id", "ci", "--api-key", key, "--token-file",
		root)

	// A registry that was added with a key gets requests with it; another one does not.
	run(2, "only the name of an existing file", "registry", "add", "safe", url, "--api-key-id", "ci",
		"--api-key-string", "x")
	run(0, "safe is the current registry", "registry", "add", "safe", url, "--api-key-id", "ci", "--api-key", key)
	run(0, "[]", "registry", "list", "-o", "json")
	run(1, "Authentication Required", "registry", "list", "-r", url+"/")
	kept, err := os.ReadFile(filepath.Join(data, "registries.json"))
	if err != nil {
		t.Fatal(err)
	}
	said.Write(kept)
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	run(2, "file is accessible by other users", "registry", "list")
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}

	s.Signer.ReplaceRing(auth.NewKeyRing(time.Now()))
	run(0, "[]", "registry", "list", "-o", "json")
	for _, secret := range []string{servicetest.Root, "another root token", string(raw[40:90])} {
		if strings.Contains(said.String(), secret) {
			t.Errorf("a secret is said or kept in clear: %s", said.String())
		}
	}
}
