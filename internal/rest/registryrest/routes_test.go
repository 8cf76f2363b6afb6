package registryrest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/metric/metrictest"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
)

const id = "aaaaaaaa-0000-4000-8000-000000000001"

func serve(t testing.TB) *httptest.Server {
	t.Helper()
	s, _ := serveOf(t)
	return s
}

// serveOf returns the registry that is served, too.
func serveOf(t testing.TB) (*httptest.Server, *registry.Registry) {
	t.Helper()
	reg, err := registry.Open(t.Context(), registry.Options{Base: t.TempDir(), Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(rest.Handler(registryrest.Routes(reg), slog.New(slog.DiscardHandler)))
	t.Cleanup(func() {
		s.Close()
		_ = reg.Close()
	})
	return s, reg
}

type answer struct {
	code int
	raw  string
	api.Envelope[json.RawMessage]
}

// send makes a request as clients do; body is sent without a Content-Type.
func send(t testing.TB, s *httptest.Server, method, path, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{code: resp.StatusCode, raw: string(raw)}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &a.Envelope); err != nil {
			t.Fatalf("%s %s: %s is no envelope", method, path, raw)
		}
	}
	return a
}

// pushEmpty publishes a version that has a configuration and no files.
func pushEmpty(t testing.TB, s *httptest.Server, id, name, tag string) {
	t.Helper()
	body := fmt.Sprintf(
		`{"id":%q,"name":%q,"tag":%q,"description":"d","arch":"amd64","config":{"ram":"4G"},"files":[]}`, id, name, tag)
	a := send(t, s, "POST", "/registry/v2/push", body)
	var session api.PushSession
	if err := json.Unmarshal(a.Body, &session); err != nil || a.code != 200 {
		t.Fatal(a.raw)
	}
	if a := send(t, s, "POST", "/registry/v2/push/"+session.Session+"/commit", ""); a.code != 200 || a.Status != "OK" {
		t.Fatal(a.raw)
	}
}

func TestAnswers(t *testing.T) {
	s := serve(t)
	for _, tag := range []string{"v1", "a+b c/d#e:f", "v3"} {
		pushEmpty(t, s, id, "debian", tag)
	}
	const unknown = "bbbbbbbb-0000-4000-8000-000000000001"
	notFound := "Not found"
	for _, c := range []struct {
		request, body string
		code          int
		message       string // "" means OK
		holds         string // in the body
	}{
		{"GET /livez", "", 200, "", ""},
		{"GET /readyz", "", 200, "", ""},
		{"GET /registry/status", "", 200, "", `{"status":"Running","version":"1.2.3"}`},
		{"GET /registry/disk", "", 200, "", `"total":`},
		{"POST /registry/pause", `{"seconds":60}`, 200, "", ""},
		{"POST /registry/pause?seconds=0", "", 200, "", ""},
		{"POST /registry/pause", `{"seconds":601}`, 400, "seconds: must be an integer between 0 and 600", ""},
		{"POST /registry/pause", "", 400, "seconds: is required", ""},
		{"GET /registry/vm", "", 200, "", `[{"` + id + `":"debian"}]`},
		{"GET /registry/v2/vm", "", 200, "", `"id":"` + id +
			`","name":"debian","size":0,"arch":"amd64","last_pull":0,"last_push":`},
		{
			"GET /registry/v2/vm?id=" +
				id, "", 200, "",
			`"versions":[{"tag":"v1","number":0,"description":"d","images":[],"state_files":[],"state_file":"","config_file":"` + id + `.yaml","nvram":"","size":0,"arch":"amd64","creation_date":`,
		},
		{"GET /registry/v2/vm?id=" + strings.ToUpper(id), "", 200, "", `"versions":[`},
		{"GET /registry/v2/vm", `{"id":"` + id + `"}`, 200, "", `"versions":[`},
		{"GET /registry/vm?id=" + id, "", 200, "", `"versions":[{"tag":"v1"`},
		{"GET /registry/v2/vm?id=" + unknown, "", 200, notFound, ""},
		{"GET /registry/v2/vm?id=debian", "", 200, notFound, ""},
		{"GET /registry/v2/vm?id=%zz", "", 400, `query: cannot be read: invalid URL escape "%zz"`, ""},
		{"GET /registry/vm?id=x", "", 200, notFound, ""},
		{"GET /registry/vm/info?id=" + id, "", 200, "", `{"name":"debian","ram":"4G","uuid":"` + id + `"}`},
		{"GET /registry/vm/info?id=" + id + "&tag=a%2Bb%20c/d%23e:f", "", 200, "", `"ram"`},
		{"GET /registry/vm/info?id=" + id + "&version=1", "", 200, "", `"ram"`},
		{"GET /registry/vm/info", `{"id":"` + id + `","version":"1","tag":"a+b c/d#e:f","more":{}}` +
			"\n", 200, "", `"ram"`},
		{"GET /registry/vm/info?id=" + id + "&tag=&version=", "", 200, "", `"ram"`},
		{"GET /registry/vm/info?id=" + id + "&tag=no", "", 400, "Did not find any versions with tag no", ""},
		{
			"GET /registry/vm/info?id=" + id +
				"&tag=v1&version=2", "", 400, "Did not find any versions with tag v1 and number 2: tag v1 is version 0",
			"",
		},
		{"GET /registry/vm/info?id=" + id + "&version=9", "", 400, "Did not find any versions with number 9", ""},
		{"GET /registry/vm/info?id=" + id +
			"&version=-1", "", 400, "version: must be an integer between 0 and 2147483647", ""},
		{"GET /registry/vm/info?id=" + id + "&version=1&number=2", "", 400, "number: version and number differ", ""},
		{"GET /registry/vm/info", "", 400, "id: is required", ""},
		{"GET /registry/vm/info?id=" + unknown, "", 200, notFound, ""},
		{"GET /registry/v2/pull?look=true&id=" + id, "", 200, "", `"files":[]`},
		{"GET /registry/v2/pull?look=maybe&id=" + id, "", 400, "look: must be true or false", ""},
		{"GET /registry/v2/vm?id=" + id, "", 200, "", `"last_pull":0,`},
		{"GET /registry/v2/pull?id=" + id + "&tag=v3", "", 200, "", `"files":[]`},
		{"GET /registry/v2/pull?id=" + unknown, "", 200, notFound, ""},
		{"GET /registry/v2/pull?id=" + id + "&tag=no", "", 400, "Did not find any versions with tag no", ""},
		{"GET /registry/v2/blob/" + strings.Repeat("0", 64), "", 200, notFound, ""},
		{"GET /registry/v2/blob/..%2f..%2fetc", "", 200, notFound, ""},
		{"GET /registry/v2/push/0123", "", 200, notFound, ""},
		{"POST /registry/v2/push/0123/commit", `{}`, 200, notFound, ""},
		{"DELETE /registry/v2/push/0123", "", 200, notFound, ""},
		{"PUT /registry/v2/push/0123/disk?off=0", "x", 200, notFound, ""},
		{"PUT /registry/v2/push/0123/disk", "x", 400, "off: must be an integer between 0 and 9223372036854775807", ""},
		{"POST /registry/v2/push", `{"id":"` + id +
			`","tag":"v1","config":{}}`, 200, "Template debian already has the tag v1", ""},
		{"POST /registry/v2/push", `{"id":"` + id + `","config":{}}`, 400, "tag: is required", ""},
		{"POST /registry/v2/push", `{"id":"` + id + `","tag":"v9"}`, 400, "config: is required", ""},
		{"POST /registry/v2/push", `{"tag":"v9","config":{}}`, 400, "name: is required for a new template", ""},
		{"PUT /registry/vm/arch", `{"id":"` + id + `","arch":"arm64"}`, 200, "", ""},
		{"PUT /registry/vm/arch?id=" + id + "&arch=arm64", "", 200, "", ""},
		{"PUT /registry/vm/arch", `{"id":"` + id + `","arch":"x86"}`, 400, "arch: must be amd64 or arm64", ""},
		{"PUT /registry/vm/arch", `{"id":"` + id + `"}`, 400, "arch: is required", ""},
		{
			"PUT /registry/vm/arch", `{"id":`,
			400, "The request body is not a JSON object: unexpected end of JSON input (at byte 6)", "",
		},
		{"PUT /registry/vm/arch", `{"id":"` + unknown + `","arch":"arm64"}`, 200, notFound, ""},
		{"DELETE /registry/revert", `{"id":"` + id + `","tag":"no"}`, 400, "Did not find any versions with tag no", ""},
		{"DELETE /registry/revert?id=" + id, `{"tag":"v3"}`, 200, "", "null"},
		{"DELETE /registry/revert?id=" + id + "&number=1", "", 200, "", "null"},
		{"DELETE /registry/revert", `{"id":"` + id + `"}`, 200, "", "null"},
		{"DELETE /registry/revert?id=" + unknown, "", 200, notFound, ""},
		{"DELETE /registry/vm?id=" + id, "", 200, "", "null"},
		{"DELETE /registry/vm?id=" + id, "", 200, notFound, ""},
		{"DELETE /registry/vm", "", 400, "id: is required", ""},
		{"GET /registry/vm", "", 200, "", "[]"},
		{"GET /registry/v2/vm", "", 200, "", "[]"},
		{"POST /registry/vm", "", 405, "Method POST is not allowed here (allowed: DELETE, GET, HEAD)", ""},
		{"GET /registry/nothing", "", 404, "No such route: GET /registry/nothing", ""},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		a := send(t, s, method, path, c.body)
		status := map[bool]string{true: "OK", false: "FAIL"}[c.message == ""]
		if a.code != c.code || a.Status != status || a.Message != c.message || !strings.Contains(a.raw, `"message":`) {
			t.Errorf("%s %s: %d %s", c.request, c.body, a.code, a.raw)
		}
		if !strings.Contains(string(a.Body), c.holds) &&
			!(c.holds == "null" && strings.Contains(a.raw, `"body":null`)) {
			t.Errorf("%s %s: %s lacks %s", c.request, c.body, a.raw, c.holds)
		}
	}
}

// TestBlobRanges pushes one layer manually and reads it like caches and mirrors do.
func TestBlobRanges(t *testing.T) {
	s, reg := serveOf(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	var stored []byte
	var frames []blob.PartFrame
	x, err := blob.Encode(t.Context(), source{bytes.NewReader(data)},
		blob.EncodeOptions{Size: int64(len(data))}, func(f blob.Frame, _ int64, p []byte) error {
			stored, frames = append(stored, p...), append(frames, blob.PartFrame{StoredSize: f.StoredSize, Sum: f.Sum})
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	a := send(t, s, "POST", "/registry/v2/push",
		fmt.Sprintf(`{"name":"n","tag":"t","config":{},"files":[{"name":"d","kind":"disk","size":%d}]}`, len(data)))
	var session api.PushSession
	if err := json.Unmarshal(a.Body, &session); err != nil {
		t.Fatal(a.raw)
	}
	base := "/registry/v2/push/" + session.Session
	root := x.Digest().String()
	for _, c := range []struct{ request, body string }{
		{"PUT " + base + "/d?off=0", string(blob.PartHeader(frames)) + string(stored)},
		{"PUT " + base + "/d?index=" + root, string(x.Encoded())},
		{"POST " + base + "/commit", `{"roots":{"d":"` + root + `"}}`},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		if a := send(t, s, method, path, c.body); a.code != 200 && a.code != 204 || a.Message != "" {
			t.Fatalf("%s: %d %s", c.request, a.code, a.raw)
		}
	}
	whole := append(bytes.Clone(stored), x.IndexAndFooter()...)
	for rng, want := range map[string]string{
		"": string(whole), "bytes=0-9": string(whole[:10]), "bytes=5-": string(whole[5:]),
		"bytes=-64": string(whole[len(whole)-64:]),
	} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/registry/v2/blob/"+root, nil)
		if rng != "" {
			req.Header.Set("Range", rng)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(got) != want || resp.Header.Get("ETag") != `"`+root+`"` ||
			!strings.Contains(resp.Header.Get("Cache-Control"), "immutable") ||
			resp.Header.Get("Content-Encoding") != "" {
			t.Errorf("range %q: %d bytes, %v", rng, len(got), resp.Header)
		}
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/registry/v2/blob/"+root, nil)
	req.Header.Set("If-None-Match", `"`+root+`"`)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotModified {
		t.Errorf("known blob: %s", resp.Status)
	}
	figures, sent := metrictest.Values(reg.Families()), float64(2*len(whole)-5+10+64)
	if figures["buildyard_registry_sent_bytes_total"] != sent ||
		figures["buildyard_registry_received_bytes_total"] != float64(len(stored)) {
		t.Errorf("%v, want %v sent and %d received", figures, sent, len(stored))
	}
}

type source struct{ *bytes.Reader }

func (s source) NextData(off int64) (int64, int64, error) { return off, s.Size(), nil }

func TestEveryRouteNamesAPermission(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range registryrest.Routes(nil) {
		if r.Permission == "" || (r.Handle == nil) == (r.HandleRaw == nil) || seen[r.Pattern] {
			t.Errorf("route %q", r.Pattern)
		}
		seen[r.Pattern] = true
		if open := r.Permission == rest.NoCredential; open != (strings.HasSuffix(r.Pattern, "/livez") ||
			strings.HasSuffix(r.Pattern, "/readyz")) {
			t.Errorf("route %q is open: %v", r.Pattern, open)
		}
	}
}
