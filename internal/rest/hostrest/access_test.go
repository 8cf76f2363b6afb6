package hostrest

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
)

const token = "correct horse battery"

// TestPages: no page of the web gets through, whatever name leads here; programs do.
func TestPages(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Access.AllowedHosts = []string{"Build-7.example.test."} })
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(w.url, "http://"))
	for _, c := range []struct {
		headers string // with " | " between
		code    int
	}{
		{"", 200},
		{"Host: localhost", 200},
		{"Host: LOCALHOST.:" + port, 200},
		{"Host: 127.0.0.1", 200},
		{"Host: 127.9.9.9:1", 200},
		{"Host: [::1]:" + port, 200},
		{"Host: build-7.example.test:80", 200},
		{"Host: evil.example.test", 403}, // a name that was led here (DNS rebinding)
		{"Host: evil.example.test:" + port, 403},
		{"Host: localhost.evil.example.test", 403},
		{"Host: 127.0.0.1.evil.example.test", 403},
		{"Host: 192.0.2.1", 403},
		{"Host: 0.0.0.0", 403},
		{"Host: [::ffff:192.0.2.1]:80", 403},
		{"Origin: http://evil.example.test", 403},
		{"Origin: http://127.0.0.1:" + port, 403},
		{"Origin: null", 403},
		{"Sec-Fetch-Site: cross-site", 403},
		{"Sec-Fetch-Site: same-site | Sec-Fetch-Mode: no-cors", 403},
		{"Sec-Fetch-Site: none", 200},
		{"Sec-Fetch-Site: none | Sec-Fetch-Site: cross-site", 403},
	} {
		var headers []string
		if c.headers != "" {
			headers = strings.Split(c.headers, " | ")
		}
		for _, target := range []string{
			"GET /v1/status", "GET /v1/report", "POST /v1/report/reset", "GET /metrics", "GET /livez",
		} {
			method, path, _ := strings.Cut(target, " ")
			r := w.do(method, path, "", headers...)
			if r.code != c.code || c.code != 200 && r.Status != api.StatusFail {
				t.Errorf("%s with %q: %d %s", target, c.headers, r.code, r.raw)
			}
			if r.header.Get("Access-Control-Allow-Origin") != "" ||
				r.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s with %q: %v", target, c.headers, r.header)
			}
		}
	}
	if r := w.do("PUT", "/v1/status", "", "Origin: null"); r.code != 403 || r.header.Get("Allow") != "" {
		t.Errorf("a page hears what there is: %d %v", r.code, r.header)
	}
	if n := w.rest.refusedRequests.Value(); n == 0 {
		t.Error("refusals are not counted")
	}
}

// TestToken: requests without the token are refused, and reveal nothing about the routes that exist.
func TestToken(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Access.Token = token })
	for _, c := range []struct {
		headers []string
		in      bool
	}{
		{[]string{"Authorization: Bearer " + token}, true},
		{[]string{"Authorization: bearer  " + token}, true},
		{nil, false},
		{[]string{"Authorization: Bearer " + token + "x"}, false},
		{[]string{"Authorization: Bearer " + token[:5]}, false},
		{[]string{"Authorization: Bearer "}, false},
		{[]string{"Authorization: Bearer"}, false},
		{[]string{"Authorization: " + token}, false},
		{[]string{"Authorization: Basic " + token}, false},
		{[]string{"Authorization: Bearer " + token, "Authorization: Bearer x"}, false},
		{[]string{"Authorization: Bearer " + token, "Origin: http://evil.example.test"}, false},
	} {
		for target, code := range map[string]int{
			"GET /v1/status": 200, "POST /v1/report/reset": 200,
			"GET /metrics": 200, "GET /v1/nothing": 404, "GET /v1/report?min_score=x": 400,
		} {
			method, path, _ := strings.Cut(target, " ")
			r := w.do(method, path, "", c.headers...)
			switch {
			case c.in && r.code != code:
				t.Errorf("%s with %q: %d %s", target, c.headers, r.code, r.raw)
			case !c.in && r.code != http.StatusUnauthorized && r.code != http.StatusForbidden:
				t.Errorf("%s with %q: %d %s", target, c.headers, r.code, r.raw)
			case r.code == http.StatusUnauthorized && !strings.HasPrefix(r.header.Get("Www-Authenticate"), "Bearer"):
				t.Errorf("%s: no challenge", target)
			}
		}
	}
	if r := w.do("GET", "/livez", ""); r.code != 200 {
		t.Errorf("a probe: %d", r.code)
	}
	must(t, w.rest.SetAccess(Access{Listen: "127.0.0.1:1", Token: "another one that is long"}))
	if r := w.do("GET", "/v1/status", "", "Authorization: Bearer "+token); r.code != http.StatusUnauthorized {
		t.Errorf("the token of before: %d", r.code)
	}
}

// TestTokenForChanges: on a loopback address reads need no token, and changes do; on another address everything
// does.
func TestTokenForChanges(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Access.Token, o.Access.ReadWithoutToken = token, true })
	changes := []string{
		"POST /v1/report/reset", "POST /v1/full-scan", "POST /v1/real-time-scan/start",
		"POST /v1/real-time-scan/stop",
	}
	for _, target := range changes {
		method, path, _ := strings.Cut(target, " ")
		if r := w.do(method, path, ""); r.code != http.StatusUnauthorized {
			t.Errorf("%s without the token: %d %s", target, r.code, r.raw)
		}
		if r := w.do(method, path, "", "Authorization: Bearer "+token+"x"); r.code != http.StatusUnauthorized {
			t.Errorf("%s with a wrong token: %d %s", target, r.code, r.raw)
		}
	}
	if r := w.do("POST", "/v1/report/reset", "", "Authorization: Bearer "+token); r.code != 200 {
		t.Errorf("with the token: %d %s", r.code, r.raw)
	}
	reads := []string{"GET /v1/status", "GET /v1/report", "POST /v1/report", "GET /metrics"}
	for _, target := range reads {
		method, path, _ := strings.Cut(target, " ")
		if r := w.do(method, path, ""); r.code != 200 {
			t.Errorf("%s without the token: %d %s", target, r.code, r.raw)
		}
	}
	must(t, w.rest.SetAccess(Access{Listen: "192.0.2.1:1", Token: token, ReadWithoutToken: true}))
	for _, target := range append(reads, changes...) {
		method, path, _ := strings.Cut(target, " ")
		if r := w.do(method, path, ""); r.code != http.StatusUnauthorized {
			t.Errorf("%s without the token on another address: %d %s", target, r.code, r.raw)
		}
	}
	if err := w.rest.SetAccess(Access{Listen: "127.0.0.1:1", ReadWithoutToken: true}); err == nil {
		t.Error("changes need a token, and none is fine")
	}
}

// TestWhoNeedsAToken: what others can reach is never open.
func TestWhoNeedsAToken(t *testing.T) {
	for listen, needs := range map[string]bool{
		"127.0.0.1:8081": false, "localhost:8081": false, "[::1]:8081": false, "127.1.2.3:0": false,
		"0.0.0.0:8081": true, ":8081": true, "[::]:8081": true, "192.0.2.1:8081": true, "build-7:8081": true,
		"[::ffff:192.0.2.1]:1": true,
	} {
		s := &Server{}
		if err := s.SetAccess(Access{Listen: listen}); (err != nil) != needs {
			t.Errorf("%s without a token: %v", listen, err)
		}
		if err := s.SetAccess(Access{Listen: listen, Token: token}); err != nil {
			t.Errorf("%s with a token: %v", listen, err)
		}
		if err := s.SetAccess(Access{Listen: listen, Token: "short"}); err == nil {
			t.Errorf("%s with a short token", listen)
		}
	}
}

// TestBrokenAnswers: one that fails before anything was sent reports the error, one that fails later cannot be
// taken for a complete one.
func TestBrokenAnswers(t *testing.T) {
	w := newWorld(t, nil)
	fails := func(after int) route {
		return route{method: "GET", path: "/fails", stream: func(a *streamWriter, _ query) error {
			a.writeString("[")
			for range after {
				if err := a.writeValue(strings.Repeat("x", 1000)); err != nil {
					return err
				}
				a.writeString(",")
			}
			return errors.New("the disk is on fire")
		}}
	}
	w.rest.routesByPath["/early"] = map[string]route{"GET": fails(3)}
	w.rest.routesByPath["/late"] = map[string]route{"GET": fails(300)}
	if r := w.do("GET", "/early", ""); r.code != 500 || r.Status != api.StatusFail || r.Error != "the disk is on fire" {
		t.Errorf("early: %d %s", r.code, r.raw)
	}
	resp, err := http.Get(w.url + "/late")
	must(t, err)
	defer resp.Body.Close()
	if raw, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) || len(raw) == 0 {
		t.Errorf("late: %d bytes, %v", len(raw), err)
	}
}

// TestCrowds: beyond a limit callers are told to retry.
func TestCrowds(t *testing.T) {
	w := newWorld(t, nil)
	for range maxReportReaders {
		w.rest.reportSlots <- struct{}{}
	}
	if r := w.do("GET", "/v1/report", ""); r.code != 503 || r.Status != api.StatusFail ||
		r.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.code, r.raw)
	}
	w.state("GET", "/v1/status", "Idle")
	for range maxRequests {
		w.rest.requestSlots <- struct{}{}
	}
	if r := w.do("GET", "/v1/status", ""); r.code != 503 {
		t.Errorf("%d %s", r.code, r.raw)
	}
}
