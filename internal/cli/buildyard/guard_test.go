package buildyard_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest/servicetest"
)

// readyToken makes what looks like the token of a provider.
func readyToken(expires time.Time) string {
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	return part(`{"alg":"RS256"}`) + "." + part(fmt.Sprintf(`{"exp":%d}`, expires.Unix())) + ".hidden-signature"
}

// guard puts a service that knows its callers before the script's controller, $GUARD, and
// another before its registry, $GUARDREG. The root token is in root.token, a token that
// counts in job.jwt and one that has expired in old.jwt. Only the permission group builders
// may see nodes.
func guard(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: guard")
	}
	token := readyToken(time.Now().AddDate(1, 0, 0))
	for name, service := range map[string]farm.Service{
		"GUARD": farm.ServiceController, "GUARDREG": farm.ServiceRegistry,
	} {
		behind, err := url.Parse(ts.Getenv(map[string]string{"GUARD": "SVC_CONTROLLER", "GUARDREG": "REGISTRY"}[name]))
		ts.Check(err)
		server := httptest.NewServer(servicetest.New(servicetest.Options{
			Service: service, JWT: token,
			Next: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }},
			May: func(who auth.Identity, r *http.Request) error {
				if strings.HasPrefix(r.URL.Path, "/api/v1/node") && !who.MayActFor("builders") {
					return auth.Forbidden("list_nodes")
				}
				return nil
			},
		}))
		ts.Defer(server.Close)
		ts.Setenv(name, server.URL)
	}
	for name, text := range map[string]string{
		"root.token": servicetest.Root, "job.jwt": token, "old.jwt": readyToken(time.Now().Add(-time.Hour)),
	} {
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text+"\n"), 0o600))
	}
}

// secretless checks that the output of the last command contains nothing of the files: secretless
// FILE...
func secretless(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: secretless file...")
	}
	said := ts.ReadFile("stdout") + ts.ReadFile("stderr")
	for _, name := range args {
		text := strings.TrimSpace(ts.ReadFile(name))
		for _, secret := range []string{
			text, text[len(text)/2:], base64.StdEncoding.EncodeToString([]byte("root:" + text)),
		} {
			if strings.Contains(said, secret) {
				ts.Fatalf("what is in %s is said:\n%s", name, said)
			}
		}
	}
}
