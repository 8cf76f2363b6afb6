package registryrest_test

import (
	"context"
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
)

// TestStorageJobFromElsewhere: with authentication a permitted caller may start it from any address, without it
// only a caller on the registry's own machine.
func TestStorageJobFromElsewhere(t *testing.T) {
	reg, err := registry.Open(t.Context(), registry.Options{Base: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reg.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		reg.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	const token = "a long root token"
	root, err := auth.NewRootToken(token)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := rest.NewGuard(rest.GuardOptions{
		Identifier: &auth.Authenticator{Root: root}, Logger: slog.New(slog.DiscardHandler),
		Authorizer: auth.NewAuthorizer(auth.Policy{Service: farm.ServiceRegistry},
			auth.NewGrantTable(auth.Grants{}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	routes := registryrest.Routes(reg)
	credential := "Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+token))
	for name, c := range map[string]struct {
		guard            *rest.Guard
		peer, credential string
		want             int
	}{
		"nobody asks, from here":           {nil, "127.0.0.1:4711", "", http.StatusOK},
		"nobody asks, from elsewhere":      {nil, "192.0.2.1:4711", "", http.StatusForbidden},
		"nobody asks, whatever they claim": {nil, "192.0.2.1:4711", credential, http.StatusForbidden},
		"root, from elsewhere":             {guard, "192.0.2.1:4711", credential, http.StatusOK},
		"nobody, from here":                {guard, "127.0.0.1:4711", "", http.StatusUnauthorized},
	} {
		h := c.guard.Handler(routes, slog.New(slog.DiscardHandler))
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			r := httptest.NewRequest(method, "/registry/v2/upkeep", strings.NewReader(`{"do":"check"}`))
			r.RemoteAddr = c.peer
			r.Header.Set("Authorization", c.credential)
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != c.want {
				t.Errorf("%s: %s: %d %s, want %d", name, method, w.Code, w.Body, c.want)
			}
		}
	}
}
