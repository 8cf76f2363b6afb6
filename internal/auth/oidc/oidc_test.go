package oidc

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/oidc/oidctest"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	clientID     = "buildyard"
	clientSecret = "s3cret+/ with spaces"
)

var signer = auth.NewSigner(auth.NewKeyRing(time.Now()))

// site is a service that lets users in by a provider.
type site struct {
	*Provider
	idp   *oidctest.Provider
	url   string
	log   *journal
	ahead *atomic.Int64 // its clock, in ns
}

// journal is a log that may be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func newSite(t *testing.T, change ...func(*Options)) *site {
	t.Helper()
	idp := oidctest.New(t)
	return siteOf(t, idp, change...)
}

func siteOf(t *testing.T, idp *oidctest.Provider, change ...func(*Options)) *site {
	t.Helper()
	s := &site{idp: idp, log: &journal{}, ahead: &atomic.Int64{}}
	o := Options{
		ClientID: clientID, ClientSecret: auth.NewSecret(clientSecret), ProviderURL: idp.URL, Signer: signer,
		Logger: slog.New(slog.NewTextHandler(s.log, nil)),
		Now:    func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) },
	}
	for _, c := range change {
		c(&o)
	}
	var err error
	if s.Provider, err = New(o); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", s.Begin)
	mux.HandleFunc("GET "+CallbackPath, s.Callback(func(w http.ResponseWriter, _ *http.Request, l Login) {
		_, _ = fmt.Fprintf(w, "%s %q %s", l.Name, l.Groups, l.ReturnPath)
	}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	idp.Client(t, clientID, o.ClientSecret.Reveal(), s.url+CallbackPath)
	return s
}

// browser keeps cookies and follows redirects.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, Timeout: 20 * time.Second}
}

func visit(t *testing.T, c *http.Client, address string) (int, string) {
	t.Helper()
	resp, err := c.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// step visits an address and does not go where it is sent.
func step(t *testing.T, c *http.Client, address string) *http.Response {
	t.Helper()
	still := *c
	still.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := still.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

func expect(t *testing.T, status int, text string, wantStatus int, want string) {
	t.Helper()
	if status != wantStatus || !strings.HasPrefix(text, want) {
		t.Errorf("got %d %q; want %d %q", status, text, wantStatus, want)
	}
}

func claimsOfAnn() map[string]any {
	return map[string]any{"preferred_username": "ann", "groups": []string{"ci", "admins"}}
}

func TestLogin(t *testing.T) {
	for name, secret := range map[string]auth.Secret{"confidential": auth.NewSecret(clientSecret), "public": {}} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, func(o *Options) { o.ClientSecret = secret })
			s.idp.LogsIn("u-1", claimsOfAnn())
			status, text := visit(t, browser(t), s.url+"/login?return=/instances%3Fpage%3D2")
			expect(t, status, text, 200, `ann ["admins" "ci"] /instances?page=2`)
			if l := s.log.String(); strings.Contains(l, clientSecret) || strings.Contains(l, "failed") {
				t.Error(l)
			}
		})
	}
}

// TestLoginStepByStep looks at what each step sends.
func TestLoginStepByStep(t *testing.T) {
	s := newSite(t)
	s.idp.LogsIn("u-1", claimsOfAnn())
	b := browser(t)
	first := step(t, b, s.url+"/login")
	to, err := first.Location()
	if err != nil {
		t.Fatal(err)
	}
	q := to.Query()
	for name, want := range map[string]string{
		"response_type": "code", "client_id": clientID, "redirect_uri": s.url + CallbackPath,
		"code_challenge_method": "S256", "scope": "openid profile email",
	} {
		if q.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, q.Get(name), want)
		}
	}
	if len(q.Get("state")) < 20 || len(q.Get("nonce")) < 20 || len(q.Get("code_challenge")) != 43 {
		t.Errorf("state, nonce or challenge are short: %s", to)
	}
	c := first.Cookies()[0]
	if !c.HttpOnly || c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != CallbackPath || c.MaxAge != 600 {
		t.Errorf("the cookie is %v", c)
	}
	if first.Header.Get("Cache-Control") != "no-store" {
		t.Error("the redirect may be cached")
	}
	back := step(t, b, to.String())
	callback, err := back.Location()
	if err != nil {
		t.Fatal(err)
	}
	last := step(t, b, callback.String())
	if last.StatusCode != 200 || last.Header.Get("Referrer-Policy") != "no-referrer" || last.Cookies()[0].MaxAge >= 0 {
		t.Errorf("the callback answers %d %v", last.StatusCode, last.Header)
	}
	// The same answer again: the browser no longer has a login, and so the code is spent.
	status, text := visit(t, b, callback.String())
	expect(t, status, text, 400,
		"The login failed (the login was not started by this browser, or took too long); log in again.")
	own, _ := url.Parse(s.url + CallbackPath)
	b.Jar.SetCookies(own, []*http.Cookie{{Name: c.Name, Value: c.Value, Path: c.Path}})
	status, text = visit(t, b, callback.String())
	expect(t, status, text, 403, "The identity provider refused the login (invalid_grant: ")
}

func TestSecureCookie(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
		header string
		want   string
	}{
		{"plain", func(*Options) {}, "", "http://build.test/oidc/v1/callback"},
		{"header of anybody", func(*Options) {}, "https", "http://build.test/oidc/v1/callback"},
		{"behind a proxy", func(o *Options) { o.Proxied = true }, "https", "https://build.test/oidc/v1/callback"},
		{"fixed", func(o *Options) { o.PublicURL = "https://ci.test/" }, "", "https://ci.test/oidc/v1/callback"},
	} {
		s := newSite(t, c.change)
		r := httptest.NewRequest(http.MethodGet, "http://build.test/login", nil)
		r.Header.Set("X-Forwarded-Proto", c.header)
		w := httptest.NewRecorder()
		s.Begin(w, r)
		to, _ := w.Result().Location()
		if got := to.Query().Get("redirect_uri"); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
		if secure := w.Result().Cookies()[0].Secure; secure != strings.HasPrefix(c.want, "https") {
			t.Errorf("%s: secure is %v", c.name, secure)
		}
	}
}

func TestLoginRefused(t *testing.T) {
	s := newSite(t)
	status, text := visit(t, browser(t), s.url+"/login")
	expect(t, status, text, 403, "The identity provider refused the login (access_denied: ")
	if strings.Count(text, "\n") != 1 {
		t.Errorf("not one sentence: %q", text)
	}
	s.idp.LogsIn("u-1", map[string]any{"groups": "ci"})
	s.idp.Profile(map[string]any{"sub": "u-1"})
	status, text = visit(t, browser(t), s.url+"/login")
	expect(t, status, text, 403, "The answer of the identity provider cannot be used; the log says why.")
	if l := s.log.String(); !strings.Contains(l, "preferred_username") {
		t.Errorf("the log does not say why: %s", l)
	}
	s.idp.LogsIn("u-1", claimsOfAnn())
	b := browser(t)
	to, _ := step(t, b, s.url+"/login").Location()
	callback, _ := step(t, b, to.String()).Location()
	foreign := callback.Query()
	foreign.Set("state", rand.Text())
	otherIssuer := callback.Query()
	otherIssuer.Set("iss", "https://evil.test")
	for name, c := range map[string]struct {
		browser *http.Client
		query   string
		says    string
	}{
		"other browser": {
			browser(t), callback.RawQuery, "The login failed (the login was not started by this browser",
		},
		"foreign state": {b, foreign.Encode(), "The login failed (the login was not started by this browser"},
		"no query":      {b, "", "The login failed (the login was not started by this browser"},
	} {
		jar := *c.browser
		if c.browser == b { // each try spends the cookie
			jar.Jar = copyJar(t, b, s.url)
		}
		status, text := visit(t, &jar, s.url+CallbackPath+"?"+c.query)
		if status != 400 || !strings.HasPrefix(text, c.says) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	late := *b
	late.Jar = copyJar(t, b, s.url)
	status, text = visit(t, &late, s.url+CallbackPath+"?"+otherIssuer.Encode())
	expect(t, status, text, 400, "The login failed (the response is from another identity provider)")
	late.Jar = copyJar(t, b, s.url)
	s.ahead.Store(int64(flowTTL + time.Second))
	status, text = visit(t, &late, callback.String())
	expect(t, status, text, 400, "The login failed (the login was not started by this browser, or took too long)")
}

func copyJar(t *testing.T, b *http.Client, site string) http.CookieJar {
	t.Helper()
	u, _ := url.Parse(site + CallbackPath)
	jar, _ := cookiejar.New(nil)
	cookies := b.Jar.Cookies(u)
	for _, c := range cookies {
		c.Path = CallbackPath
	}
	jar.SetCookies(u, cookies)
	return jar
}

// TestReplicas: one replica begins a login and another one ends it; a service with other keys
// cannot.
func TestReplicas(t *testing.T) {
	one := newSite(t)
	two, stranger := siteOf(t, one.idp),
		siteOf(t, one.idp, func(o *Options) { o.Signer = auth.NewSigner(auth.NewKeyRing(time.Now())) })
	f := newFlow("https://x/", "/to", time.Now())
	text := one.signFlow(f)
	if got, err := two.verifyFlow(text); err != nil || got.State != f.State || got.ReturnPath != "/to" {
		t.Errorf("%v %v", got, err)
	}
	if _, err := stranger.verifyFlow(text); err == nil {
		t.Error("a stranger's key fits")
	}
	for i := range len(text) {
		b := []byte(text)
		b[i] ^= 1
		if _, err := one.verifyFlow(string(b)); err == nil {
			t.Errorf("changed at %d, and taken", i)
		}
	}
}

func TestReturnStaysHere(t *testing.T) {
	for to, want := range map[string]string{
		"/": "/", "": "/", "/a": "/a", "/a/b/?x=1&y=%2F%2F": "/a/b/?x=1&y=%2F%2F", "/a/../b": "/b", "/a b": "/a%20b",
		"//evil.test": "/", "https://evil.test/": "/", "/\\evil.test": "/", "\\\\evil.test": "/",
		"javascript:alert(1)": "/",
		"evil.test":           "/", "///evil.test": "/evil.test", "/%2Fevil.test": "/evil.test",
		"/%5Cevil.test": "/%5Cevil.test",
		"/.//evil.test": "/evil.test",
		"/\tx":          "/", "/\nx": "/", "http:/evil": "/", "/a#frag": "/a", "//": "/", "/%00": "/%00",
		"@evil.test":                         "/",
		"//u@evil.test/":                     "/",
		"/" + strings.Repeat("a", maxReturn): "/",
	} {
		if got := LocalPath(to); got != want {
			t.Errorf("%q gives %q, want %q", to, got, want)
		}
	}
}

// TestProfile: what the ID token lacks comes from the profile, if it is the same user's.
func TestProfile(t *testing.T) {
	s := newSite(t)
	s.idp.LogsIn("u-1", map[string]any{"groups": "ci admins"})
	s.idp.Profile(map[string]any{"sub": "u-1", "preferred_username": "ann", "groups": "root"})
	status, text := visit(t, browser(t), s.url+"/login")
	expect(t, status, text, 200, `ann ["admins" "ci"] /`)
	s.idp.Profile(map[string]any{"sub": "u-2", "preferred_username": "bob"})
	status, text = visit(t, browser(t), s.url+"/login")
	expect(t, status, text, 403, "The answer of the identity provider cannot be used")
	if l := s.log.String(); !strings.Contains(l, "the user profile is of another user") {
		t.Error(l)
	}
}

// TestTooManyLogins: a login beyond the limit is refused immediately.
func TestTooManyLogins(t *testing.T) {
	s := newSite(t)
	s.idp.LogsIn("u-1", claimsOfAnn())
	for range maxLogins {
		s.loginSlots <- struct{}{}
	}
	status, text := visit(t, browser(t), s.url+"/login")
	expect(t, status, text, 503, "Too many logins in progress")
	<-s.loginSlots
	status, text = visit(t, browser(t), s.url+"/login")
	expect(t, status, text, 200, "ann")
}

func TestWrongOptions(t *testing.T) {
	for says, change := range map[string]func(*Options){
		"the OIDC client ID is missing":              func(o *Options) { o.ClientID = "" },
		"the signer of login states":                 func(o *Options) { o.Signer = nil },
		"the URL of the identity provider is not of": func(o *Options) { o.ProviderURL = "http://idp.test" },
		"not of the form https://host":               func(o *Options) { o.ProviderURL = "idp.test" },
		"of the identity provider is not of the form": func(o *Options) {
			o.ProviderURL = "https://u:p@idp.test"
		},
		"public URL of this service is not":       func(o *Options) { o.PublicURL = "ci.test" },
		"service is not of the form https://host": func(o *Options) { o.PublicURL = "https://ci.test/below" },
	} {
		o := Options{ClientID: clientID, ProviderURL: "https://idp.test", Signer: signer}
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
	p, err := New(Options{ClientID: clientID, ProviderURL: "https://idp.test/x" +
		discoveryPath, Signer: signer, Scopes: []string{"groups,email roles"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(p.opts.Scopes, " "); got != "openid groups email roles" {
		t.Error(got)
	}
	raw, _ := json.Marshal(p.Public())
	if want := `{"user_name_field":"preferred_username","groups_field":"groups","provider_url":"https://idp.test/x"}`; string(raw) != want {
		t.Errorf("%s", raw)
	}
	if p.DisplayName() != "idp.test" {
		t.Error(p.DisplayName())
	}
}

func TestSentences(t *testing.T) {
	for in, want := range map[string]string{
		"a\x00b\r\n c\x1b[31m": "ab c[31m", "  ": "", "<b>\xff": "<b>",
		strings.Repeat("é", 300): strings.Repeat("é", maxProviderMessage) + "…",
	} {
		if got := printableText(in); got != want {
			t.Errorf("%q gives %q", in, got)
		}
	}
	w := httptest.NewRecorder()
	p := &Provider{opts: Options{Logger: slog.New(slog.DiscardHandler), ShowFailure: failPlainly}}
	p.showFailure(w, httptest.NewRequest(http.MethodGet, "/", nil), farm.Errorf(farm.CodeInternal, "secret detail"))
	if w.Code != 500 || w.Body.String() != "Internal error.\n" ||
		w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
}
