package authrest_test

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/authrest"
)

func TestConfig(t *testing.T) {
	s := newSite(t, farm.ServiceController)
	const form = `{"user_name_field":"preferred_username","groups_field":"groups","provider_url":%q}`
	provider := fmt.Sprintf(form, s.idp.URL)
	if a := s.do(t, s.client(t), "GET /config/v1/auth",
		""); a.text != `{"status":"OK","message":"","body":{"oidc":`+provider+`},"oidc":`+provider+"}\n" {
		t.Error(a.text)
	}
	s = newSite(t, farm.ServiceRegistry, func(o *authrest.Options) { o.Provider = nil })
	if a := s.do(t, s.client(t), "GET /config/v1/auth", ""); a.text != `{"status":"OK","message":"","body":{}}`+"\n" {
		t.Error(a.text)
	}
}

const page = "text/html,application/xhtml+xml"

// cookieOf returns the log-in that an answer sets.
func cookieOf(t *testing.T, s *site, a answer) *http.Cookie {
	t.Helper()
	for _, line := range a.header.Values("Set-Cookie") {
		c, err := http.ParseSetCookie(line)
		must(t, err)
		if strings.Contains(c.Name, "buildyard_session") {
			s.hush(c.Value)
			return c
		}
	}
	return &http.Cookie{}
}

func TestLoginWithTheToken(t *testing.T) {
	s := newSite(t, farm.ServiceController)
	c := s.client(t)
	a := s.do(t, c, "GET /login?return=/vm%3Fa%3D%22b", "")
	for _, want := range []string{
		`action="/login"`, `type="password"`, `value="/vm?a=&#34;b"`,
		`Log in with The &lt;Firm&gt;`, `/login/oidc?return=`,
	} {
		if !strings.Contains(a.text, want) {
			t.Errorf("no %s in %s", want, a.text)
		}
	}
	if a.code != 200 || !strings.HasPrefix(a.header.Get("Content-Security-Policy"),
		"default-src 'none'; style-src 'sha256-") || a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Error(a.code, a.header)
	}
	form := func(token, back string) string { return url.Values{"token": {token}, "return": {back}}.Encode() }
	for back, want := range map[string]string{
		"/vm": "/vm", "": "/", "https://evil.test/": "/", "//evil.test/": "/", "/a/../vm?x=1": "/vm?x=1",
	} {
		c := s.client(t)
		a := s.do(t, c, "POST /login", form(rootToken, back), "Accept", page, "Origin", s.url)
		if a.code != 303 || a.header.Get("Location") != want {
			t.Errorf("%s: %d %s", back, a.code, a.header.Get("Location"))
		}
		kept := cookieOf(t, s, a)
		if kept.Name != auth.SecureLoginCookie || !kept.Secure || !kept.HttpOnly ||
			kept.SameSite != http.SameSiteStrictMode || kept.Path != "/" || kept.Domain != "" || kept.MaxAge != 8*3600 {
			t.Errorf("%+v", kept)
		}
		if a := s.do(t, c, "GET /api/v1/apikey", ""); a.code != 200 {
			t.Errorf("with the cookie: %d", a.code)
		}
		if a := s.do(t, c, "POST /logout", "", "Origin", "https://evil.test"); a.code != 403 {
			t.Errorf("another site logs out: %d", a.code)
		}
		if a := s.do(t, c, "POST /logout", "", "Accept", page); a.code != 303 || a.header.Get("Location") != "/login" ||
			cookieOf(t, s, a).MaxAge >= 0 {
			t.Errorf("log-out: %+v", a)
		}
		if a := s.do(t, c, "GET /api/v1/apikey", ""); a.code != 401 {
			t.Errorf("after the log-out: %d", a.code)
		}
	}
	if a := s.do(t, c, "POST /logout", ""); a.code != 401 {
		t.Errorf("somebody logs out who is not in: %d", a.code)
	}
	if a := s.do(t, c, "POST /login", `{"token":"`+rootToken+`"}`); a.code != 200 ||
		a.text != `{"status":"OK","message":""}`+"\n" || cookieOf(t, s, a).Value == "" {
		t.Errorf("as JSON: %+v", a)
	}
	if n := strings.Count(s.logged(),
		`who=root method=root key="" address=127.0.0.1 verb=POST route="POST /login" outcome=done`); n != 6 {
		t.Errorf("%d log-ins are in the audit", n)
	}
}

func TestWrongTokens(t *testing.T) {
	s := newSite(t, farm.ServiceController)
	c := s.client(t)
	evil := s.do(t, c, "POST /login", `{"token":"`+rootToken+`"}`, "Origin", "https://evil.test")
	if evil.code != 403 || cookieOf(t, s, evil).Value != "" {
		t.Errorf("another site logs its visitors in: %+v", evil)
	}
	for body, want := range map[string]int{
		`{"token":"wrong"}`: 401, `{}`: 401, ``: 401, `{"token":`: 400, `{"token":7}`: 400, "token=%zz": 400,
		"token=" + strings.Repeat("x", 1<<20): 413,
	} {
		a := s.do(t, c, "POST /login", body)
		if a.code != want || a.code == 401 && a.text != rest.AuthenticationRequired || cookieOf(t, s, a).Value != "" {
			t.Errorf("%.30s: %d %s", body, a.code, a.text)
		}
	}
	a := s.do(t, c, "POST /login", "token=wrong&return=/vm", "Accept", page)
	if a.code != 403 || !strings.Contains(a.text, "The credential is wrong.") || !strings.Contains(a.text, `value="/vm"`) ||
		strings.Contains(a.text, `"wrong"`) {
		t.Errorf("%d %s", a.code, a.text)
	}
	// The limit is shared with wrong tokens in headers. A right token waits too, for seconds: otherwise the
	// response would reveal that it is right.
	for _, token := range []string{"wrong", url.QueryEscape(rootToken)} {
		for _, accept := range []string{page, "application/json"} {
			a := limited(s, t, c, func() answer { return s.do(t, c, "POST /login", "token="+token, "Accept", accept) })
			if !strings.Contains(a.text, "Too many failed attempts") || a.header.Get("Retry-After") == "" {
				t.Errorf("%s %s: %s %v", token, accept, a.text, a.header)
			}
		}
	}
}

// limited returns the response to a client whose address has failed too often. An attempt is allowed again
// every two seconds; then it repeats the failures.
func limited(s *site, t *testing.T, c *http.Client, ask func() answer) answer {
	t.Helper()
	var a answer
	for range 10 {
		for range 100 {
			if s.do(t, c, "GET /vm", "", "Authorization", rootBasic("wrong")).code == 429 {
				break
			}
		}
		if a = ask(); a.code == 429 {
			return a
		}
	}
	t.Errorf("%d %s", a.code, a.text)
	return a
}

// follow goes where a browser is sent, until it is at a page.
func (s *site) follow(t *testing.T, c *http.Client, to string) (answer, []answer) {
	t.Helper()
	var way []answer
	for range 8 {
		a := s.do(t, c, "GET "+to, "", "Accept", page)
		way = append(way, a)
		if _, next, ok := strings.Cut(a.text, `<meta http-equiv="refresh" content="0; url=`); ok && a.code == 200 {
			next, _, _ = strings.Cut(next, `"`)
			a.header.Set("Location", html.UnescapeString(next))
		} else if a.code < 300 || a.code > 399 {
			return a, way
		}
		to = a.header.Get("Location")
		if u, err := url.Parse(to); err == nil && u.Query().Get("code") != "" {
			s.hush(u.Query().Get("code"))
		}
	}
	t.Fatal("the browser goes in circles")
	return answer{}, nil
}

func TestLoginAtTheProvider(t *testing.T) {
	s := newSite(t, farm.ServiceController)
	s.idp.LogsIn("u-1", map[string]any{"preferred_username": "ann", "groups": []string{"ci"}})
	s.grant(t, "ci", "list_vms")
	c := s.client(t)
	a, way := s.follow(t, c, "/login/oidc?return=/vm")
	if a.code != 200 || !strings.Contains(a.text, `"ann"`) {
		t.Errorf("%d %s", a.code, a.text)
	}
	if kept := cookieOf(t, s, way[len(way)-2]); kept.Name != auth.SecureLoginCookie || kept.MaxAge != 8*3600 {
		t.Errorf("%+v", kept)
	}
	if a := s.do(t, c, "GET /api/v1/apikey", ""); a.code != 403 {
		t.Errorf("ann manages keys: %d", a.code)
	}
	s.grant(t, "ci") // takes effect immediately
	if a := s.do(t, c, "GET /vm", ""); a.code != 403 || !strings.Contains(a.text, "list_vms") {
		t.Errorf("%d %s", a.code, a.text)
	}
	if !strings.Contains(s.logged(),
		`who=ann method=oidc key="" address=127.0.0.1 verb=GET route="GET /oidc/v1/callback" outcome=done`) {
		t.Error("the log-in is not in the audit")
	}

	for name, claims := range map[string]map[string]any{
		"You are in 300 groups": {"preferred_username": "ann", "groups": many(300)},
		"The answer of the":     {"preferred_username": "root"},
	} {
		s.idp.LogsIn("u-1", claims)
		if a, _ := s.follow(t, s.client(t), "/login/oidc"); a.code != 403 || !strings.Contains(a.text, name) {
			t.Errorf("%s: %d %s", name, a.code, a.text)
		}
	}
	s.idp.LogsIn("", nil)
	if a, _ := s.follow(t, s.client(t), "/login/oidc"); a.code != 403 ||
		!strings.Contains(a.text, "refused the login") || !strings.Contains(a.text, "Begin again") {
		t.Errorf("%d %s", a.code, a.text)
	}
	if a := s.do(t, s.client(t), "GET /oidc/v1/callback?code=x&state=y", ""); a.code != 400 ||
		cookieOf(t, s, a).Value != "" {
		t.Errorf("%d %s", a.code, a.text)
	}
}

func many(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("a-group-of-some-length-", i))
	}
	return out
}

// TestTokensOfTheProvider: programs bring a JWT as their Bearer value.
func TestTokensOfTheProvider(t *testing.T) {
	s := newSite(t, farm.ServiceController)
	s.grant(t, "ci", "list_vms")
	c := s.client(t)
	mine := func(claims map[string]any) string {
		return "Bearer " + s.hush(s.idp.Sign(t, claims))
	}
	good := mine(map[string]any{"aud": clientID, "preferred_username": "robot", "groups": []string{"ci"}})
	if a := s.do(t, c, "GET /vm", "", "Authorization", good); a.code != 200 || !strings.Contains(a.text, `"robot"`) {
		t.Errorf("%d %s", a.code, a.text)
	}
	for name, token := range map[string]string{
		"of another client": mine(map[string]any{"aud": "other", "preferred_username": "robot"}),
		"root":              mine(map[string]any{"aud": clientID, "preferred_username": "root"}),
		"cut":               good[:len(good)-10],
	} {
		if a := s.do(t, c, "GET /vm", "", "Authorization", token); a.code != 401 ||
			a.text != rest.AuthenticationRequired {
			t.Errorf("%s: %d %s", name, a.code, a.text)
		}
	}
}

// TestPlainCookies: without TLS the cookie has the other name, unless a proxy with TLS is in front.
func TestPlainCookies(t *testing.T) {
	root, err := auth.NewRootToken(rootToken)
	must(t, err)
	for name, c := range map[string]struct {
		proxied bool
		header  string
		want    string
	}{
		"plain": {false, "", auth.LoginCookie}, "anybody's header": {false, "https", auth.LoginCookie},
		"proxy": {true, "https", auth.SecureLoginCookie}, "plain proxy": {true, "http", auth.LoginCookie},
	} {
		signer := auth.NewSigner(auth.NewKeyRing(time.Now()))
		h := rest.Handler(authrest.Routes(
			authrest.Options{LoginCookies: auth.NewLoginCookies(signer, root,
				"", nil), RootToken: root, Proxied: c.proxied}), nil)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login",
			strings.NewReader("token="+url.QueryEscape(rootToken)))
		r.Header.Set("X-Forwarded-Proto", c.header)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if kept := w.Result().Cookies(); len(kept) != 1 || kept[0].Name != c.want ||
			kept[0].Secure != (c.want == auth.SecureLoginCookie) {
			t.Errorf("%s: %v", name, kept)
		}
	}
}

// TestLoginWithKey: a browser that has made a session of an API key gets a login cookie for it.
func TestLoginWithKey(t *testing.T) {
	s := newSite(t, farm.ServiceController)
	c := s.client(t)
	key := s.makeKey(t, s.client(t), "ci", "builders")
	session := strings.TrimPrefix(s.session(t, c, "ci", key), "Bearer ")
	a := s.do(t, c, "POST /login", url.Values{"session": {session}, "return": {"/vm"}}.Encode(), "Accept", page,
		"Origin", s.url)
	if a.code != 303 || a.header.Get("Location") != "/vm" || cookieOf(t, s, a).Value == "" {
		t.Fatalf("%+v", a)
	}
	if a := s.do(t, c, "GET /api/v1/apikey", ""); a.code != 403 {
		t.Errorf("a key that is not root's may see keys: %d", a.code)
	}
	if a := s.do(t, s.client(t), "POST /login", url.Values{"session": {session}}.Encode()); a.code != 401 {
		t.Errorf("a session logs in twice: %d", a.code)
	}
	if a := s.do(t, s.client(t), "GET /vm", "", "Authorization", "Bearer "+session); a.code == 401 {
		t.Error("a session that a browser has logged in with is not valid for other requests")
	}
	session = strings.TrimPrefix(s.session(t, s.client(t), "ci", key), "Bearer ")
	must(t, s.keys.Delete(t.Context(), "ci"))
	if a := s.do(t, c, "GET /api/v1/apikey", ""); a.code != 401 {
		t.Errorf("after the deletion of the key: %d", a.code)
	}
	if a := s.do(t, s.client(t), "POST /login", url.Values{"session": {session}}.Encode()); a.code != 401 {
		t.Errorf("a session of a deleted key logs in: %d", a.code)
	}
}
