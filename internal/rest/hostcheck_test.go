package rest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
)

// frontTo is a front before a handler that responds with the path and method that it received.
func frontTo(o HostCheckOptions) http.Handler {
	o.Logger = slog.New(slog.DiscardHandler)
	return HostCheck(o, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Method + " " + r.URL.EscapedPath()))
	}))
}

func TestFoldedPaths(t *testing.T) {
	for path, want := range map[string]string{
		"/":                    "/",
		"/api/v1/vm":           "/api/v1/vm",
		"//api/v1/vm":          "/api/v1/vm",
		"/api//v1///vm":        "/api/v1/vm",
		"/api/v1/vm/":          "/api/v1/vm",
		"/api/v1/vm///":        "/api/v1/vm",
		"///":                  "/",
		"//evil.test/":         "/evil.test",
		"/group/a%2Fb":         "/group/a%2Fb",
		"/group/%2F%2Fa//b%2F": "/group/%2F%2Fa/b%2F",
		"/files/a//../b":       "/files/a/../b", // what names other directories stays to be refused
		"/files/a/..//":        "/files/a/..",
		"/files/%2e%2e//x":     "/files/%2e%2e/x",
		"/files/a%20b//c+d":    "/files/a%20b/c+d",
		"/files/\u00e9//x":     "/files/%C3%A9/x",
		"/files/" + strings.Repeat("/", 5000) + "x": "/files/x",
	} {
		u := &url.URL{}
		plain, err := url.PathUnescape(path)
		must(t, err)
		u.Path, u.RawPath = plain, path
		foldPath(u)
		if got := u.EscapedPath(); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
		if unescaped, err := url.PathUnescape(u.EscapedPath()); err != nil || unescaped != u.Path {
			t.Errorf("%s: the path is %q and %q", path, u.Path, u.EscapedPath())
		}
	}
	star := &url.URL{Path: "*"}
	if foldPath(star); star.Path != "*" {
		t.Error(star.Path)
	}
}

// TestFoldedPathsAreChecked: a path of another form is the same route, with the same permission, and
// keeps its body.
func TestFoldedPathsAreChecked(t *testing.T) {
	g := newGate(t)
	h := HostCheck(HostCheckOptions{Guarded: true, Logger: slog.New(slog.DiscardHandler)}, g.handler)
	for what, want := range map[string]int{
		"POST //vm": 200, "POST /vm/": 200, "GET //vm//7": 200, "GET /vm/../open": 404, "GET //vm/..//open": 404,
		"DELETE //node/": 403, "GET /vm%2F": 404,
	} {
		method, path, _ := strings.Cut(what, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, "http://h"+path, strings.NewReader(`{}`))
		r.Header.Set("Authorization", g.key(t))
		a := httptest.NewRecorder()
		h.ServeHTTP(a, r)
		if a.Code != want {
			t.Errorf("%s: %d %s", what, a.Code, a.Body)
		}
		r = httptest.NewRequestWithContext(t.Context(), method, "http://h"+path, nil)
		a = httptest.NewRecorder()
		h.ServeHTTP(a, r)
		if a.Code != 401 {
			t.Errorf("%s, nobody: %d %s", what, a.Code, a.Body)
		}
	}
}

// TestHosts: a web page cannot reach a loopback listener by its own domain name.
func TestHosts(t *testing.T) {
	own, err := os.Hostname()
	must(t, err)
	loopback := HostCheckOptions{
		LoopbackOnly: true, Hosts: []string{"Builds.Test", ""},
		HostsSetting: "SVC_ALLOWED_HOSTS",
	}
	proxied := loopback
	proxied.AnyHost = true
	others := HostCheckOptions{HostsSetting: "SVC_ALLOWED_HOSTS", Hosts: loopback.Hosts} // that other machines reach
	guarded := others
	guarded.Guarded = true
	for host, want := range map[string]int{
		"127.0.0.1:8090": 200, "127.0.0.1": 200, "[::1]:8090": 200, "192.0.2.1:80": 200, "localhost:8090": 200,
		"LOCALHOST.": 200, "ci.localhost": 200,
		own: 200, strings.ToUpper(own) + ":8090": 200, "builds.test:443": 200, "builds.test.": 200, "": 200,
		"evil.test": 403, "evil.test:8090": 403, "localhost.evil.test": 403, "127.0.0.1.evil.test": 403,
		"xlocalhost": 403, "builds.test.evil": 403,
		"evil.test@localhost": 403, "[evil]": 403, "127.0.0.1:8090:1": 403,
	} {
		for _, c := range []struct {
			o    *HostCheckOptions
			to   string // the address of this machine
			want int
		}{
			{&loopback, "127.0.0.1", want},
			{&proxied, "127.0.0.1", 200},
			{&others, "192.0.2.7", 200},
			{&others, "127.0.0.1", want},
			{&others, "::1", want},
			{&guarded, "127.0.0.1", 200},
		} {
			o, want := c.o, c.want
			ctx := context.WithValue(t.Context(), http.LocalAddrContextKey,
				&net.TCPAddr{IP: net.ParseIP(c.to), Port: 8090})
			r := httptest.NewRequestWithContext(ctx, "POST", "/api/v1/vm", nil)
			r.Host = host
			a := httptest.NewRecorder()
			frontTo(*o).ServeHTTP(a, r)
			if a.Code != want {
				t.Errorf("%q, %+v at %s: %d %s", host, *o, c.to, a.Code, a.Body)
			}
			if a.Code != 403 {
				continue
			}
			if status, message, _ := (answer{a, ""}).envelope(t); status != api.StatusFail ||
				!strings.Contains(message, "SVC_ALLOWED_HOSTS") {
				t.Errorf("%q: %s", host, a.Body)
			}
		}
	}
}

// TestOtherSitesWithoutAuthentication: a page of another site changes, reads and follows nothing; programs,
// which send no page headers, and users who follow a link are not affected.
func TestOtherSitesWithoutAuthentication(t *testing.T) {
	for name, c := range map[string]struct {
		what   string
		header []string
		want   int
		cors   int // the status where pages of all sites may use the API
	}{
		"a program":                {"POST /x", nil, 200, 200},
		"a program that deletes":   {"DELETE /x", nil, 200, 200},
		"a form of another site":   {"POST /x", []string{"Origin", "https://evil.test"}, 403, 200},
		"an old browser's file":    {"POST /x", []string{"Origin", "null"}, 403, 200},
		"a script of another site": {"DELETE /x", []string{"Sec-Fetch-Site", "cross-site"}, 403, 200},
		"a sister":                 {"POST /x", []string{"Sec-Fetch-Site", "same-site"}, 403, 200},
		"the own page": {
			"POST /x", []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://h"}, 200, 200,
		},
		"the own page by http": {"POST /x", []string{"Origin", "http://h"}, 200, 200},
		"somebody types the address": {
			"GET /x", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}, 200, 200,
		},
		"a link": {
			"GET /x", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200, 200,
		},
		"an image": {
			"GET /x", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403, 200,
		},
		"a stream": {"GET /live", []string{
			"Origin", "https://evil.test", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors",
		}, 403, 200},
		"a stream of an old browser": {"GET /live", []string{"Origin", "https://evil.test"}, 403, 200},
		"a WebSocket": {
			"GET /x", []string{"Origin", "https://evil.test", "Upgrade", "websocket"}, 403, 200,
		},
		"a WebSocket of a program":    {"GET /x", []string{"Upgrade", "websocket"}, 200, 200},
		"a page of the reverse proxy": {"POST /x", []string{"Origin", "https://builds.test:8443"}, 200, 200},
		"a name that begins alike":    {"POST /x", []string{"Origin", "https://builds.test.evil"}, 403, 200},
		"no origin that can be read":  {"POST /x", []string{"Origin", "https://builds.test\x7f"}, 403, 200},
	} {
		for cors, want := range map[bool]int{false: c.want, true: c.cors} {
			method, path, _ := strings.Cut(c.what, " ")
			r := httptest.NewRequestWithContext(t.Context(), method, "http://h"+path, nil)
			for i := 0; i < len(c.header); i += 2 {
				r.Header.Set(c.header[i], c.header[i+1])
			}
			a := httptest.NewRecorder()
			frontTo(HostCheckOptions{Hosts: []string{"builds.test"}, CrossOrigin: cors}).ServeHTTP(a, r)
			if a.Code != want {
				t.Errorf("%s, pages of all sites: %v: %d %s", name, cors, a.Code, a.Body)
			}
		}
	}
}

func TestLoopbackListeners(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "192.0.2.1:1": false, "0.0.0.0:1": false,
	} {
		addr, err := net.ResolveTCPAddr("tcp", address)
		must(t, err)
		if IsLoopback(listenerAt{addr: addr}) != want {
			t.Errorf("%s is loopback: %t", address, !want)
		}
	}
	if IsLoopback(listenerAt{addr: &net.UnixAddr{Name: "/x"}}) {
		t.Error("a socket file is loopback")
	}
	for peer, want := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "192.0.2.1:1": false, "": false, "127.0.0.1": false,
	} {
		if IsLoopbackRequest(&http.Request{RemoteAddr: peer}) != want {
			t.Errorf("%q is from here: %t", peer, !want)
		}
	}
	for _, name := range forwardingHeaders {
		r := &http.Request{RemoteAddr: "127.0.0.1:1", Header: http.Header{name: {"192.0.2.1"}}}
		if IsLoopbackRequest(r) {
			t.Errorf("a request with %s is from here", name)
		}
	}
	for host, want := range map[string]bool{
		"localhost": true, "localhost:80": true, "127.0.0.1": true,
		"[::1]:80": true, "192.0.2.1": false, "x.test": false, "": false,
	} {
		if isOwnHost(host) != want {
			t.Errorf("%q is here: %t", host, !want)
		}
	}
}

// listenerAt listens nowhere.
type listenerAt struct {
	net.Listener
	addr net.Addr
}

func (l listenerAt) Addr() net.Addr { return l.addr }
