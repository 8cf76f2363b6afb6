package buildnode_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
	"github.com/buildyard/buildyard/internal/cli/buildyard"
	"github.com/buildyard/buildyard/internal/config"
)

// program is a service of this repository in this process.
type program interface {
	ParseFlags(src config.Sources) error
	Open(ctx context.Context) error
	Run(ctx context.Context) error
	Close() error
	URL() string
}

// serve runs a service until the test ends.
func serve(t *testing.T, s program, settings map[string]string) string {
	t.Helper()
	settings["SVC_LISTEN_ADDR"], settings["SVC_LOG_LEVEL"] = "127.0.0.1:0", "error"
	err := s.ParseFlags(config.Sources{Env: func(key string) (string, bool) {
		v, ok := settings[key]
		return v, ok
	}})
	if err == nil {
		err = s.Open(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = s.Close()
	})
	return s.URL()
}

// TestNodesOfARegistryElsewhere: a registry that only shares the root token with the controller
// accepts the tokens of its nodes. One that does not even share that accepts the key that a node
// joined with, if it has the same key.
func TestNodesOfARegistryElsewhere(t *testing.T) {
	t.Parallel()
	for name, tokenThere := range map[string]string{
		"the same root token": scriptRoot, "another one": "another root token",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			settings := func(token, data string) map[string]string {
				return map[string]string{
					"SVC_ENABLE_AUTH": "true", "SVC_ROOT_TOKEN": token,
					"SVC_ENABLE_API_KEYS": "true", "SVC_LOCAL_LISTEN_ADDR": "127.0.0.1:0", data: filepath.Join(dir,
						data),
				}
			}
			registry := serve(t, &buildyard.RegistryService{Stderr: io.Discard}, settings(tokenThere, "SVC_BASE_PATH"))
			mine := settings(scriptRoot, "SVC_DATA_DIR")
			mine["SVC_REGISTRY"] = registry
			controller := serve(t, &buildyard.ControllerService{Stderr: io.Discard}, mine)

			private, public := keyPair(t)
			for address, token := range map[string]string{controller: scriptRoot, registry: tokenThere} {
				addKey(t, address, token, public)
			}
			key := filepath.Join(dir, "nodes.key")
			if err := os.WriteFile(key, []byte(private), 0o600); err != nil {
				t.Fatal(err)
			}
			home := filepath.Join(dir, "node")
			main := func(ctx context.Context, args ...string) (int, string) {
				var out bytes.Buffer
				code := buildnode.Main(ctx, append([]string{"--data-dir", home}, args...),
					buildnode.Streams{Out: &out, Err: &out})
				return code, out.String()
			}
			if code, said := main(t.Context(), "join", controller, "--api-key-id", "nodes", "--api-key-file",
				key); code != 0 {
				t.Fatal(said)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan string, 1)
			go func() {
				_, said := main(ctx, "run", "--driver", "sim")
				done <- said
			}()
			code, said := 1, ""
			for end := time.Now().Add(time.Minute); code != 0 &&
				time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				code, said = main(t.Context(), "registry", "list", "-r", registry, "-o", "json")
			}
			cancel()
			log := <-done
			if code != 0 || strings.TrimSpace(said) != "[]" {
				t.Errorf("%d: %s\n%s", code, said, log)
			}
			if tokenThere == scriptRoot && strings.Contains(log, "registry rejected the token of this node") {
				t.Errorf("the agent says: %s", log)
			}
			if strings.Contains(log, scriptRoot) || strings.Contains(log, private[100:140]) ||
				strings.Contains(log, "node~") {
				t.Errorf("a secret is in the log: %s", log)
			}
		})
	}
}

// keyPair creates the key pair of an API key as a client does.
func keyPair(t *testing.T) (private, public string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(x509.MarshalPKCS1PrivateKey(key)), base64.StdEncoding.EncodeToString(der)
}

// addKey adds the API key nodes to a service.
func addKey(t *testing.T, address, root, public string) {
	t.Helper()
	creds := client.Options{Credentials: client.RootToken(root)}
	k := api.NewKey{ID: "nodes", TTL: 3600, Groups: []string{"nodes"}, PublicKey: public}
	c, err := client.NewController(address, creds)
	if err == nil {
		if _, err = c.CreateKey(t.Context(), k); client.CodeOf(err) != "" { // it is a registry
			var r *client.Registry
			if r, err = client.NewRegistry(address, creds); err == nil {
				_, err = r.CreateKey(t.Context(), k)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
