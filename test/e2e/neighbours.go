package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"html"
	"maps"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/buildyard/buildyard/internal/auth/oidc"
	"github.com/buildyard/buildyard/internal/auth/oidc/oidctest"
	"github.com/buildyard/buildyard/test/rig"
)

// externalServices are the sites that a browser visits in addition to the clouds: an identity
// provider that the guarded cloud trusts, and an untrusted site with a page that tries to change
// something.
type externalServices struct {
	stand     *rig.TestEnv
	idp       *oidctest.Provider
	secret    string // of the guarded cloud at the provider
	untrusted *http.Server
	site      string // address of the untrusted page, with ?to= for the target of its form
}

// clientID is the guarded cloud at the identity provider, and firm what people call that.
const (
	clientID = "buildyard-e2e"
	firm     = "The <Firm>"
)

func newExternalServices(ctx context.Context) (*externalServices, error) {
	n := &externalServices{stand: rig.NewStand(ctx), secret: rand.Text()}
	if err := n.stand.Do(func() { n.idp = oidctest.New(n.stand) }); err != nil {
		return n, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return n, err
	}
	n.untrusted = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(servePhishing)}
	go func() { _ = n.untrusted.Serve(listener) }() // until it is closed
	_, port, err := net.SplitHostPort(listener.Addr().String())
	n.site = "http://localhost:" + port + "/?to="
	return n, err
}

// servePhishing is a page with a form that requests a change at another site.
func servePhishing(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w,
		`<!doctype html><html lang="en"><title>A stranger</title><link rel="icon" href="data:,"><main><h1>You have won</h1><form method="post" action="%s"><button>Take it</button></form></main>`, html.EscapeString(r.URL.Query().Get("to")))
}

// settings adds those that make a cloud trust the provider.
func (n *externalServices) settings(all map[string]string) map[string]string {
	maps.Copy(all, map[string]string{
		"SVC_OIDC_PROVIDER_URL": n.idp.URL, "SVC_OIDC_CLIENT_ID": clientID, "SVC_OIDC_CLIENT_SECRET": n.secret,
		"SVC_OIDC_DISPLAY_NAME": firm,
	})
	return all
}

// knows makes a cloud known to the provider.
func (n *externalServices) knows(cloud string) error {
	return n.stand.Do(func() { n.idp.Client(n.stand, clientID, n.secret, cloud+oidc.CallbackPath) })
}

// has reports whether an address is that of the provider or the untrusted site.
func (n *externalServices) has(u *url.URL) bool {
	return "http://"+u.Host == n.idp.URL || u.Hostname() == "localhost"
}

func (n *externalServices) close() {
	if n.untrusted != nil {
		_ = errors.Join(n.untrusted.Close())
	}
	n.stand.Close()
}
