package portal_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/client"
)

// browser is the Accept header that browsers send.
var browser = map[string]string{"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}

// TestNoSuchPage: a browser that requests an unknown address gets a page, with the headers of
// pages; programs get the API's response.
func TestNoSuchPage(t *testing.T) {
	w := newWorld(t, nil)
	for _, at := range []string{"/nonsense", "/nodes/a/b/c", "/<script>alert(1)</script>", "/login"} {
		s := w.ask("GET", at, nil, browser)
		s.has(404, "Page not found", "Request ID <code>", "<nav", "!<script>alert")
		if !strings.HasPrefix(s.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %v", at, s.Header)
		}
		w.get(at).has(404, `{"status":"FAIL"`, "!<nav")
	}
	for _, at := range []string{"/api/v1/nonsense", "/admin/api/v1/nonsense"} {
		w.ask("GET", at, nil, browser).has(404, `{"status":"FAIL"`)
	}
	for at, to := range map[string]string{"/x/../nodes/": "/nodes"} {
		if s := w.ask("GET", at, nil, browser); s.Header.Get("Location") != to {
			t.Errorf("%s forwards to %q with %d", at, s.Header.Get("Location"), s.Code)
		}
	}
	for _, at := range []string{"/nodes/?q=a", "/instances/start/", "//nodes/"} { // slashes are folded
		w.ask("GET", at, nil, browser).has(200)
	}
	for _, at := range []string{"//elsewhere.example/", "/\\elsewhere.example/", "//elsewhere.example/%2e%2e"} {
		if s := w.ask("GET", at, nil, browser); strings.Contains(s.Header.Get("Location"), "elsewhere") &&
			strings.HasPrefix(s.Header.Get("Location"), "//") {
			t.Errorf("%s forwards to %q", at, s.Header.Get("Location"))
		}
	}
	guarded := newGuarded(t)
	guarded.ask("GET", "/nonsense?a=b", nil, browser).leadsTo("/login?return=" + url.QueryEscape("/nonsense?a=b"))
	guarded.ask("GET", "/api/v1/vm", nil, browser).has(401, "Authentication Required")
	guarded.ask("GET", "/livez", nil, browser).has(200)
	guarded.logIn()
	guarded.ask("GET", "/nonsense", nil, browser).has(404, "Page not found", "Log out")
}

// TestBehindTheEnd: a part of a table that no longer exists is the last one, not "none yet".
func TestBehindTheEnd(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	w.join("mac", 1)
	w.start(client.StartRequest{TemplateID: debian, Name: "job"})
	if _, err := w.API.CreateGroup(t.Context(), client.GroupRequest{Name: "ios"}); err != nil {
		t.Fatal(err)
	}
	for at, shows := range map[string]string{
		"/instances": "job", "/nodes": "mac-0001", "/templates": "debian", "/groups": "ios", "/events": " requested ",
	} {
		for _, page := range []string{"2", "7", "1000000"} {
			w.get(at+"?page="+page).has(200, shows, "<tbody", "!No instances", "!No nodes", "!No templates.",
				"!yet.</b>", "!fits this filter")
		}
	}
}

// TestFailuresAreWhole: the page about any refusal has what was refused, why, the ID of the request
// and what to do; and it refreshes where the page that it replaces does.
func TestFailuresAreWhole(t *testing.T) {
	w := newWorld(t, nil)
	form := map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	whole := []string{"Action failed", "Request ID <code>", `<p class="dim">`}
	w.ask("POST", "/instances/end", url.Values{"chosen": {strings.Repeat("x", 5<<20)}}, form).has(413,
		append(whole, "exceeds")...)
	w.ask("POST", "/instances/end?a=%zz", url.Values{}, form).has(400, append(whole, "cannot be read")...)
	w.ask("POST", "/instances/end", url.Values{}, map[string]string{"Sec-Fetch-Site": "cross-site"}).has(403,
		"another site")
	w.get("/instances/end").has(400, append(whole, "No instance selected")...)
	w.get("/nodes/nobody").has(404, append(whole, "!data-live=")...)
	away := newWorld(t, map[string]string{"SVC_LOCAL_REGISTRY": "http://127.0.0.1:9"})
	away.get("/templates").has(503, append(whole, `hx-trigger="changed from:body"`, `data-live="/live?topics=`)...)
	away.get("/logs").has(503, whole...)
	for _, page := range []string{"/", "/instances", "/nodes", "/health", "/instances/start"} {
		away.get(page).has(200)
	}
}
