package portal_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestLogIn: the page, its message about a wrong token, the cookie, the redirect, and the logout.
func TestLogIn(t *testing.T) {
	w := newGuarded(t)
	page := w.get("/login?return=/templates%3Fq%3D%22%3E%3Cscript%3E")
	page.has(200, "Root token", `action="/login"`, "css/portal.css", "!<script>", "!<style", "!style=",
		`value="/templates?q=&#34;&gt;&lt;script&gt;"`, "!/login/oidc")
	if csp := page.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "style-src 'self'") ||
		strings.Contains(csp, "unsafe") {
		t.Errorf("the policy is %q", csp)
	}
	for _, to := range []string{"https://evil.test/", "//evil.test", `/\evil.test`} {
		w.get("/login?return="+url.QueryEscape(to)).has(200, `value="/"`, "!evil.test")
	}
	html := map[string]string{"Accept": "text/html"}
	w.ask("POST", "/login", url.Values{"token": {"wrong"}, "return": {"/nodes"}}, html).has(403,
		"The credential is wrong.",
		`value="/nodes"`, `role="alert"`)
	in := w.ask("POST", "/login", url.Values{"token": {rootToken}, "return": {"/templates"}}, html)
	in.leadsTo("/templates")
	w.cookies = (&http.Response{Header: in.Header}).Cookies()
	for _, c := range w.cookies {
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" {
			t.Errorf("%+v", c)
		}
	}
	w.get("/templates").has(200, "Log out")
	out := w.ask("POST", "/logout", nil, html)
	out.leadsTo("/login")
	if c := (&http.Response{Header: out.Header}).Cookies(); len(c) != 1 || c[0].MaxAge >= 0 {
		t.Errorf("%+v", c)
	}
}

// TestFromElsewhere: a browser does not send a strict cookie when a link of another site is
// followed; the portal has it repeat the request before it requires a login.
func TestFromElsewhere(t *testing.T) {
	w := newGuarded(t)
	link := map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
	w.ask("GET", "/templates?q=a", nil, link).has(200, `content="0; url=/templates?q=a"`, "!Root token")
	w.get("/templates?q=a").leadsTo("/login?return=")
	w.logIn()
	w.ask("GET", "/templates", nil, link).has(200, "No templates.")
}

// TestOtherSites: nothing that a cookie vouches for is changed by a page of another site, neither
// by the pages nor by the API.
func TestOtherSites(t *testing.T) {
	w := newGuarded(t)
	w.logIn()
	for _, c := range []struct{ method, path string }{
		{"POST", "/login"},
		{"POST", "/logout"},
		{"POST", "/templates/" + debian + "/delete"},
		{"POST", "/templates/" + debian + "/distribute"},
		{"POST", "/api/v1/vm"},
		{"DELETE", "/api/v1/vm"},
		{"DELETE", "/api/v1/registry/vm"},
		{"POST", "/api/v1/apikey"},
		{"DELETE", "/api/v1/node"},
		{"POST", "/admin/api/v1/permission/group/x"},
		{"PUT", "/api/v1/vm"},
	} {
		for _, header := range []map[string]string{
			{"Sec-Fetch-Site": "cross-site"},
			{"Sec-Fetch-Site": "same-site"},
			{"Sec-Fetch-Site": "", "Origin": "https://evil.test"},
		} {
			if s := w.ask(c.method, c.path, url.Values{"a": {"b"}}, header); s.Code != http.StatusForbidden ||
				!strings.Contains(s.Text, "another site") {
				t.Errorf("%s %s with %v: %d %.200s", c.method, c.path, header, s.Code, s.Text)
			}
		}
	}
}
