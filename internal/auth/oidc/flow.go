package oidc

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/buildyard/buildyard/internal/auth"
)

const (
	cookieName = "buildyard_login"
	flowTTL    = 10 * time.Minute // how long a user may take at the provider
	maxCookie  = 4096             // bytes, as browsers have it
	maxReturn  = 1024             // bytes of the address to return to
)

// loginFlow is a login in progress. Its browser keeps it in a signed cookie, so that any replica
// can end it and nothing is stored.
type loginFlow struct {
	State       string    `json:"s"` // comes back in the callback's address: the login was begun by this browser
	Nonce       string    `json:"n"` // comes back in the ID token: the token is of this login
	Verifier    string    `json:"v"` // of PKCE: the code is redeemed by who asked for it
	CallbackURL string    `json:"r"` // address of the callback
	ReturnPath  string    `json:"t"` // where the browser goes in the end: a path of this service
	ExpiresAt   time.Time `json:"e"`
}

func newFlow(redirect, back string, now time.Time) loginFlow {
	return loginFlow{
		State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(),
		CallbackURL: redirect, ReturnPath: LocalPath(back), ExpiresAt: now.Add(flowTTL),
	}
}

// flowPurpose is the purpose of a flow's signature.
const flowPurpose auth.Purpose = "log-in at an identity provider"

// signFlow encodes a flow with a signature of this service.
func (p *Provider) signFlow(f loginFlow) string {
	raw, _ := json.Marshal(f) // texts and a time
	return p.opts.Signer.Sign(flowPurpose, raw)
}

var errFlow = errors.New("the login was not started by this browser, or took too long")

// verifyFlow reads what signFlow wrote.
func (p *Provider) verifyFlow(text string) (f loginFlow, err error) {
	if len(text) > maxCookie {
		return loginFlow{}, errFlow
	}
	raw, err := p.opts.Signer.Verify(flowPurpose, text, flowTTL)
	if err != nil || json.Unmarshal(raw, &f) != nil || p.opts.Now().After(f.ExpiresAt) {
		return loginFlow{}, errFlow
	}
	return f, nil
}

// flowCookie keeps a flow at its browser; an empty value removes it.
func flowCookie(value, redirect string) *http.Cookie {
	c := &http.Cookie{ //nolint:gosec // Secure as far as the service is reached by https
		Name: cookieName, Value: value, Path: CallbackPath, MaxAge: int(flowTTL.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: strings.HasPrefix(redirect, "https:"),
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// callbackAddress is the address to which the provider sends the browser of a request back. The
// provider has a list of the allowed addresses.
func (p *Provider) callbackAddress(r *http.Request) string {
	if p.opts.PublicURL != "" {
		return strings.TrimSuffix(p.opts.PublicURL, "/") + CallbackPath
	}
	u := url.URL{Scheme: "http", Host: r.Host, Path: CallbackPath}
	if r.TLS != nil || (p.opts.Proxied && r.Header.Get("X-Forwarded-Proto") == "https") {
		u.Scheme = "https"
	}
	return u.String()
}

// LocalPath returns an address unchanged if it stays on this service: a clean path with its query.
// It replaces any other by the front page.
func LocalPath(to string) string {
	const front = "/"
	u, err := url.Parse(to)
	if err != nil || len(to) > maxReturn || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" ||
		!strings.HasPrefix(u.Path, "/") || strings.ContainsAny(to, "\\\r\n\t") {
		return front
	}
	clean := path.Clean(u.Path)
	if strings.HasSuffix(u.Path, "/") && clean != "/" {
		clean += "/"
	}
	return (&url.URL{Path: clean, RawQuery: u.RawQuery}).String()
}
