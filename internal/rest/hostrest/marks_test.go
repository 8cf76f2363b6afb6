package hostrest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
)

// TestMarks: a job is marked once, and its report has what came since then. Neither needs the token for changes.
func TestMarks(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.Access.Token, o.Access.ReadWithoutToken = strings.Repeat("x", minTokenLength), true
	})
	w.npm("before", "1.0.0")
	for _, c := range []struct {
		method, target, body string
		code                 int
		text                 string
	}{
		{"POST", "/v1/marks", "", http.StatusBadRequest, "invalid job"},
		{"POST", "/v1/marks?job=%0a", "", http.StatusBadRequest, "invalid job"},
		{"POST", "/v1/marks?job=a&path=relative", "", http.StatusBadRequest, "absolute"},
		{"POST", "/v1/marks?job=a&path=" + w.dir + "/none", "", http.StatusBadRequest, "cannot be scanned"},
		{"GET", "/v1/report?since_job=a", "", http.StatusNotFound, "no mark"},
		{"GET", "/v1/report/packages?since_job=a", "", http.StatusNotFound, "no mark"},
		{"GET", "/v1/report/vulnerabilities?since_job=a", "", http.StatusNotFound, "no mark"},
		{"GET", "/v1/report?since_job=a&fromTime=2026-01-31T12:00:00Z", "", http.StatusBadRequest, "exclusive"},
		{"POST", "/v1/report/reset", "", http.StatusUnauthorized, "token"},
		{"DELETE", "/v1/marks", "", http.StatusMethodNotAllowed, "GET or POST"},
	} {
		if r := w.do(c.method, c.target, c.body); r.code != c.code || !strings.Contains(r.Error, c.text) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.target, r.code, r.raw, c.code, c.text)
		}
	}
	q := url.Values{"job": {"build 7/ä"}, "path": {w.dir}}
	m := body[api.HostMark](w, w.do("POST", "/v1/marks", q.Encode()))
	if m.Job != "build 7/ä" || m.Path != w.dir || m.Created.IsZero() || m.Incomplete == "" {
		t.Errorf("%+v", m)
	}
	if r := w.do("POST", "/v1/marks", `{"job":"build 7/ä"}`); r.code != http.StatusConflict {
		t.Errorf("a second mark: %d %s", r.code, r.raw)
	}
	body[api.HostMark](w, w.do("POST", "/v1/marks?job=other", ""))
	w.do("POST", "/v1/full-scan?path="+w.dir, "", "Authorization: Bearer "+strings.Repeat("x", minTokenLength))
	must(t, w.host.Wait(t.Context()))
	list := body[[]api.HostMark](w, w.do("GET", "/v1/marks", ""))
	if len(list) != 2 || list[0].Job != m.Job || list[0].Incomplete != "" || list[1].Incomplete == "" {
		t.Errorf("%+v", list)
	}
	if list = body[[]api.HostMark](w, w.do("GET", "/v1/marks?job=other", "")); len(list) != 1 {
		t.Errorf("%+v", list)
	}
	since := "since_job=" + url.QueryEscape(m.Job)
	r := body[api.HostReport](w, w.do("GET", "/v1/report?"+since, ""))
	if len(r.Packages) != 3 || len(r.Vulnerabilities) != 1 {
		t.Errorf("%+v", r)
	}
	if p := body[[]api.HostPackage](w, w.do("GET", "/v1/report/packages?min_score=9&"+since, "")); len(p) != 1 {
		t.Errorf("%+v", p)
	}
	if v := body[[]api.HostVulnerability](w, w.do("POST", "/v1/report/vulnerabilities?"+since, "")); len(v) != 1 {
		t.Errorf("%+v", v)
	}
}
