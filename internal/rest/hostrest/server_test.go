package hostrest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
)

// TestStates goes through the specification's table of states.
func TestStates(t *testing.T) {
	w := newWorld(t, nil)
	w.state("GET", "/v1/status", "Idle")
	w.state("POST", "/v1/real-time-scan/start", "Real-Time")
	w.state("POST", "/v1/report/reset", "Real-Time")
	w.state("GET", "/v1/status", "Real-Time")
	w.state("POST", "/v1/real-time-scan/stop", "Idle")
	w.state("POST", "/v1/report/reset", "Idle")
	w.state("POST", "/v1/real-time-scan/start?path="+w.dir, "Running Full")
	must(t, w.host.Wait(t.Context()))
	w.state("GET", "/v1/status", "Real-Time")
	w.state("POST", "/v1/real-time-scan/stop", "Idle")
	w.scanned()
	w.state("GET", "/v1/status", "Idle")
	w.state("POST", "/v1/full-scan?real_time=true&path="+w.dir, "Running Full")
	must(t, w.host.Wait(t.Context()))
	w.state("GET", "/v1/status/", "Real-Time")
}

// TestOneAtATime: a second full scan is refused while one runs, a reset is not, and a stop ends it, also if the
// caller does not wait.
func TestOneAtATime(t *testing.T) {
	w := newWorld(t, nil)
	w.hold = make(chan struct{})
	w.state("POST", "/v1/full-scan?path="+w.dir, "Running Full")
	for _, target := range []string{"/v1/full-scan", "/v1/real-time-scan/start?path=" + w.dir} {
		if r := w.do("POST", target, ""); r.code != http.StatusConflict || r.Status != api.StatusFail ||
			!strings.Contains(r.Error, "a full scan is running") {
			t.Errorf("%s: %d %s", target, r.code, r.raw)
		}
	}
	w.state("POST", "/v1/report/reset", "Running Full")
	<-w.told
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/v1/real-time-scan/stop", nil)
	must(t, err)
	if resp, err := http.DefaultClient.Do(req); err == nil {
		t.Errorf("stop answered %s before it could", resp.Status)
	}
	close(w.hold)
	w.state("POST", "/v1/real-time-scan/stop", "Idle")
}

// TestReport compares the answers with what clients know.
func TestReport(t *testing.T) {
	w := newWorld(t, nil)
	if r := w.do("GET", "/v1/report",
		""); r.raw != `{"status":"OK","body":{"packages":[],"vulnerabilities":[]},"error":""}`+"\n" {
		t.Errorf("empty report: %s", r.raw)
	}
	w.scanned()
	r := body[map[string][]map[string]any](w, w.do("GET", "/v1/report", ""))
	packages, found := r["packages"], r["vulnerabilities"]
	if len(packages) != 2 || len(found) != 1 {
		t.Fatalf("%v", r)
	}
	p := packages[slices.IndexFunc(packages, func(p map[string]any) bool { return p["name"] == "lodash" })]
	if at, _ := p["creation_time"].(string); !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z$`).
		MatchString(at) {
		t.Errorf("creation_time %q", at)
	}
	delete(p, "creation_time")
	want := `{"cpes":["cpe:2.3:a:lodash:lodash:4.17.11:*:*:*:*:*:*:*","cpe:2.3:a:lodash:lodash:4.17.11:*:*:*:*:node.js:*:*"],` +
		`"language":"javascript","licenses":[],"locations":[{"path":"` + w.dir +
		`/node_modules/lodash/package.json"}],"metadata":null,` +
		`"name":"lodash","purl":"pkg:npm/lodash@4.17.11","type":"npm","version":"4.17.11"}`
	if got := text(t, p); got != want {
		t.Errorf("package\n%s\nwant\n%s", got, want)
	}
	raw := w.do("GET", "/v1/report/vulnerabilities", "").raw
	for _, want := range []string{
		`{"Vulnerability":{"MatchedCPEs":[{"Cpe":{"Part":"a","Vendor":"lodash","Product":"lodash","Version":"4\\.17\\.11","Update":"","Edition":"","SWEdition":"",` +
			`"TargetSW":"","TargetHW":"","Other":"","Language":""},"Constraint":"< 4.17.12","Version":"4.17.11","MatchType":"Semantic"}],` +
			`"ID":"CVE-2019-10744","Namespace":"ghsa:npm","Score":9.1,"URL":"https://nvd.nist.gov/vuln/detail/CVE-2019-10744",` +
			`"RelatedVulnerabilities":[{"ID":"GHSA-jf85-cpcp-j695","Namespace":"ghsa"}],"Severity":"critical","FixedVersions":["4.17.12"],"Known":"`,
		`"Name":"lodash","Version":"4.17.11","Type":"npm","Locations":[{"path":"` + w.dir +
			`/node_modules/lodash/package.json"}]`,
	} {
		if !strings.Contains(raw, want) {
			t.Errorf("no %s in\n%s", want, raw)
		}
	}
	if !regexp.MustCompile(`"Package":\{"ID":"\d+","Name"`).MatchString(raw) {
		t.Errorf("no numeric id in %s", raw)
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	return string(raw)
}

// TestQueries requests parts of a report, in every form that a request may have.
func TestQueries(t *testing.T) {
	w := newWorld(t, nil)
	w.scanned()
	before, after := time.Now().Add(-time.Hour).Format(time.RFC3339),
		time.Now().Add(time.Hour).In(time.FixedZone("", 7200)).Format(time.RFC3339Nano)
	for _, c := range []struct {
		query              string
		packages, findings int
	}{
		{"", 2, 1},
		{"fromTime=&min_score=", 2, 1},
		{"min_score=9", 1, 1},
		{"min_score=9.1", 1, 1},
		{"min_score=9.2", 0, 0},
		{"min_score=0", 2, 1},
		{"fromTime=" + url.QueryEscape(before), 2, 1},
		{"fromTime=" + url.QueryEscape(after), 0, 0},
		{"fromTime=" + after, 0, 0}, // its plus is a space
		{"fromTime=" + strings.ToLower(url.QueryEscape(before)) + "&min_score=9&x=y", 1, 1},
	} {
		form, err := url.ParseQuery(c.query)
		must(t, err)
		object := map[string]string{}
		for name := range form {
			object[name] = form.Get(name)
		}
		for name, r := range map[string]func(string) reply{
			"GET":  func(path string) reply { return w.do("GET", path+"?"+c.query, "") },
			"POST": func(path string) reply { return w.do("POST", path+"?"+c.query, "") },
			"form": func(path string) reply { return w.do("POST", path, c.query) },
			"JSON": func(path string) reply { return w.do("POST", path, text(t, object)) },
		} {
			packages := body[[]api.HostPackage](w, r("/v1/report/packages"))
			found := body[[]api.HostVulnerability](w, r("/v1/report/vulnerabilities"))
			both := body[api.HostReport](w, r("/v1/report"))
			if len(packages) != c.packages || len(found) != c.findings || len(both.Packages) != c.packages ||
				len(both.Vulnerabilities) != c.findings {
				t.Errorf("%s %s: %d packages, %d vulnerabilities, want %d, %d", name, c.query, len(packages),
					len(found), c.packages, c.findings)
			}
		}
	}
	if r := w.do("POST", "/v1/report/packages", `{"min_score": 9.2, "fromTime": null}`); string(r.Body) != "[]" {
		t.Errorf("a number in JSON: %s", r.raw)
	}
}

// TestRefusals: refusals contain the reason, in the envelope.
func TestRefusals(t *testing.T) {
	w := newWorld(t, nil)
	for _, c := range []struct {
		method, target, body string
		code                 int
		says                 string
	}{
		{"GET", "/v2/status", "", 404, `"/v2/status" not found`},
		{"GET", "/", "", 404, "not found"},
		{"GET", "/v1/full-scan", "", 405, "/v1/full-scan accepts only POST"},
		{"DELETE", "/v1/report", "", 405, "GET or POST"},
		{"OPTIONS", "/v1/full-scan", "", 405, "POST"},
		{"GET", "/v1/report?min_score=high", "", 400, `invalid min_score "high": want a number from 0 to 10`},
		{"GET", "/v1/report?min_score=NaN", "", 400, "min_score"},
		{"GET", "/v1/report?min_score=1e1", "", 400, "min_score"},
		{"GET", "/v1/report?min_score=-1", "", 400, "min_score"},
		{"GET", "/v1/report?min_score=11", "", 400, "min_score"},
		{"GET", "/v1/report?min_score=1&min_score=2", "", 400, `parameter min_score occurs twice, as "1" and as "2"`},
		{"GET", "/v1/report?fromTime=yesterday", "", 400, `invalid fromTime "yesterday": want an RFC 3339 time`},
		{"GET", "/v1/report?fromTime=2026-01-31", "", 400, "fromTime"},
		{"GET", "/v1/report?%zz", "", 400, "The query cannot be read"},
		{"POST", "/v1/full-scan?path=tmp", "", 400, `invalid path "tmp": want an absolute path`},
		{"POST", "/v1/full-scan?path=/tmp%00", "", 400, "absolute"},
		{"POST", "/v1/full-scan?path=/" + strings.Repeat("x", maxPathBytes), "", 400, "path has 4097 bytes"},
		{"POST", "/v1/full-scan?path=/not/there", "", 400, "the path cannot be scanned"},
		{"POST", "/v1/full-scan?real_time=perhaps", "", 400, "real_time"},
		{"POST", "/v1/full-scan", `{"path"`, 400, "The body is not a JSON object"},
		{"POST", "/v1/full-scan", `path=%zz`, 400, "The body is a form that cannot be read"},
		{"POST", "/v1/full-scan?path=/a", `path=/b`, 400, "parameter path occurs twice"},
		{"POST", "/v1/full-scan", "{" + strings.Repeat(" ", maxBodyBytes), 413, "The body is too large"},
	} {
		r := w.do(c.method, c.target, c.body)
		if r.code != c.code || r.Status != api.StatusFail || !strings.Contains(r.Error, c.says) ||
			string(r.Body) != "null" {
			t.Errorf("%s %.60s: %d %.200s", c.method, c.target, r.code, r.raw)
		}
	}
	resp, err := http.Get(w.url + "/v1/report?x=" + strings.Repeat("y", 2*maxHeaderBytes))
	if err == nil { // or the connection was reset before the answer was read
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a huge query: %s", resp.Status)
		}
	}
	w.state("GET", "/v1/status", "Idle")
}

// TestFoldPath: clients join addresses and paths with too many slashes.
func TestFoldPath(t *testing.T) {
	w := newWorld(t, nil)
	for _, path := range []string{"/v1/status", "/v1/status/", "//v1/status", "/v1//status//"} {
		w.state("GET", path, "Idle")
	}
}

// TestStatus returns everything that the command shows.
func TestStatus(t *testing.T) {
	w := newWorld(t, nil)
	if s := body[api.HostStatus](w, w.do("GET", "/v1/status", "")); s.Since != nil || s.LastScan != nil ||
		s.Progress != nil || s.Mounts == nil || s.Warnings == nil {
		t.Errorf("%+v", s)
	}
	w.hold = make(chan struct{})
	w.state("POST", "/v1/full-scan?path="+w.dir, "Running Full")
	if s := body[api.HostStatus](w, w.do("GET", "/v1/status", "")); s.Progress == nil || s.Progress.Path != w.dir {
		t.Errorf("%+v", s.Progress)
	}
	close(w.hold)
	must(t, w.host.Wait(t.Context()))
	w.state("POST", "/v1/real-time-scan/start", "Real-Time")
	s := body[api.HostStatus](w, w.do("GET", "/v1/status", ""))
	if s.Version != "1.2.3" || s.Since == nil || s.LastScan == nil || s.LastScan.Packages != 2 ||
		s.Counts.Packages != 2 || s.Counts.Vulnerabilities != 1 ||
		s.Database.Built == nil || s.Progress != nil || len(s.Mounts) != 1 || s.Mounts[0].Method != "poll" {
		t.Errorf("%+v", s)
	}
}

// TestMetrics: they can be collected, and agree with the status.
func TestMetrics(t *testing.T) {
	w := newWorld(t, nil)
	w.scanned()
	r := w.do("GET", "/metrics", "")
	for _, want := range []string{
		`buildyard_hostscan_state{state="Idle"} 1`, `buildyard_hostscan_state{state="Real-Time"} 0`,
		"buildyard_hostscan_packages 2",
		"buildyard_hostscan_vulnerabilities 1", "buildyard_hostscan_full_scans_total 1",
		"buildyard_hostscan_database_built_timestamp_seconds 1.7e+09",
		"buildyard_test 4", "process_resident_memory_bytes ",
	} {
		if !strings.Contains(r.raw, want) {
			t.Errorf("no %s in\n%s", want, r.raw)
		}
	}
	for _, probe := range []string{"/livez", "/readyz"} {
		if r := w.do("GET", probe, ""); r.code != 200 || r.raw != "ok\n" {
			t.Errorf("%s: %d %s", probe, r.code, r.raw)
		}
	}
}

// TestLongReport is one of many parts: it is whole.
func TestLongReport(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 400 {
		w.npm(fmt.Sprintf("package-%03d", i), "1.0.0")
	}
	w.scanned()
	if r := w.do("GET", "/v1/report", ""); len(r.raw) < chunkBytes || len(body[api.HostReport](w, r).Packages) != 402 {
		t.Errorf("%d bytes, %d", len(r.raw), r.code)
	}
	if r := w.do("HEAD", "/v1/report", ""); r.code != 200 || r.raw != "" ||
		r.header.Get("Content-Type") != "application/json" {
		t.Errorf("HEAD: %d %v", r.code, r.header)
	}
}
