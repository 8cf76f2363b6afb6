package buildnode_test

import (
	"bytes"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
	"github.com/buildyard/buildyard/internal/cli/buildyard"
)

// openQueue opens a cloud with an interface for nodes. Its port was free a moment before: if
// another process has taken it since then, the next attempt uses another port.
func openQueue(
	t *testing.T, settings map[string]string,
) (s *buildyard.ControllerService, queue string, end func(), err error) {
	t.Helper()
	for range 5 {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, "", nil, err
		}
		queue = l.Addr().String()
		_ = l.Close()
		settings["SVC_QUEUE_ADDR"] = queue
		if s, end, err = openCloud(t.TempDir(), settings); err == nil ||
			!strings.Contains(err.Error(), "address already in use") {
			return s, queue, end, err
		}
	}
	return nil, "", nil, errors.New("five ports were taken by others")
}

// TestInterfaceForNodes joins by the node interface of a cloud with authentication: with the token,
// with an API key, anonymously, and with a certificate of its authority.
func TestInterfaceForNodes(t *testing.T) {
	t.Parallel()
	certs := t.TempDir()
	issue(t, certs)
	pair := []string{"--ca-cert", filepath.Join(certs, "ca.pem"), "--client-cert", filepath.Join(certs,
		"user.pem"), "--client-key", filepath.Join(certs, "user-key.pem")}
	tls := map[string]string{
		"SVC_USE_QUEUE_TLS": "true", "SVC_QUEUE_SERVER_CERT": filepath.Join(certs, "server.pem"),
		"SVC_QUEUE_SERVER_KEY": filepath.Join(certs, "server-key.pem"),
		"SVC_QUEUE_CA_CERT":    filepath.Join(certs, "ca.pem"),
	}
	for name, c := range map[string]struct {
		settings map[string]string
		args     []string
		says     string
	}{
		"nothing":   {nil, nil, "--token-file or --token is required"},
		"the token": {nil, []string{"--token", "$TOKEN"}, "joined as"},
		"an API key": {
			map[string]string{"SVC_ENABLE_API_KEYS": "true"},
			[]string{"--api-key-id", "nodes", "--api-key-file", "$KEY"},
			"joined as",
		},
		"nothing where it may":  {map[string]string{"SVC_ENABLE_QUEUE_AUTH": "false"}, nil, "joined as"},
		"a certificate":         {tls, pair, "joined as"},
		"no certificate":        {tls, pair[:2], "is required"},
		"the token without one": {tls, append([]string{"--token", "$TOKEN"}, pair[:2]...), "joined as"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := map[string]string{"SVC_ENABLE_AUTH": "true", "SVC_ROOT_TOKEN": scriptRoot}
			maps.Copy(settings, c.settings)
			s, queue, end, err := openQueue(t, settings)
			if err != nil {
				t.Fatal(err)
			}
			defer end()
			scheme := "http://"
			if c.settings["SVC_USE_QUEUE_TLS"] != "" {
				scheme = "https://"
			}
			key := filepath.Join(t.TempDir(), "key")
			if settings["SVC_ENABLE_API_KEYS"] != "" {
				makeKey(t, s.URL(), "nodes", key)
			}
			args := []string{"--data-dir", filepath.Join(t.TempDir(), "node"), "join", scheme + queue}
			for _, a := range c.args {
				args = append(args, strings.NewReplacer("$TOKEN", s.JoinToken(), "$KEY", key).Replace(a))
			}
			var out bytes.Buffer
			buildnode.Main(t.Context(), args, buildnode.Streams{Out: &out, Err: &out})
			if !strings.Contains(out.String(), c.says) {
				t.Errorf("%s; want %s", out.String(), c.says)
			}
			if scheme == "http://" {
				if said := (asker{t, scheme + queue}).ask("GET", "/api/v1/node", ""); strings.Contains(said, `"OK"`) {
					t.Errorf("the interface answers more than nodes ask: %s", said)
				}
			}
		})
	}
}

// makeKey creates an API key at a controller, and stores its private key in a file.
func makeKey(t *testing.T, controller, id, file string) {
	t.Helper()
	c, err := client.NewController(controller, client.Options{Credentials: client.RootToken(scriptRoot)})
	if err != nil {
		t.Fatal(err)
	}
	private, err := c.CreateKey(t.Context(), api.NewKey{ID: id, TTL: 3600, Groups: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(private.Reveal()), 0o600); err != nil {
		t.Fatal(err)
	}
}
