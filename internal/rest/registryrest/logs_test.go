package registryrest_test

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
)

// serveLogs also returns the registry behind the routes and its directory.
func serveLogs(t testing.TB) (*httptest.Server, *registry.Registry, string) {
	t.Helper()
	dir := t.TempDir()
	reg, err := registry.Open(t.Context(), registry.Options{Base: dir, Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(rest.Handler(registryrest.Routes(reg), slog.New(slog.DiscardHandler)))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		_ = reg.Close()
	})
	return s, reg, dir
}

// fetch sends a request whose response is not an envelope.
func fetch(t testing.TB, s *httptest.Server, path string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
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
	return resp, string(raw)
}

func TestLogAnswers(t *testing.T) {
	s, _, dir := serveLogs(t)
	const notFound, badName = "Not found",
		"must be 1 to 64 letters, digits, dots, dashes, underscores and spaces, beginning with a letter or digit " +
			"and ending in no space"
	for _, c := range []struct {
		request, body string
		code          int
		message       string // "" means OK
		holds         string // in the body
	}{
		{"GET /registry/log/services", "", 200, "", "[]"},
		{"GET /registry/log/files?service=node", "", 200, notFound, ""},
		{"GET /registry/log/view?service=node", "", 200, notFound, ""},
		{"GET /registry/log/archive?service=node", "", 200, notFound, ""},
		{"POST /log", `{"machine_name":"mac-1","service":"node","host":"10.0.0.1","content":"one"}` +
			"\n", 200, "", `{"rows":1,"dropped":0}`},
		{"POST /log?service=node&machine_name=mac-1&content=two", "", 200, "", `{"rows":1,"dropped":0}`},
		{"POST /log?service=node", `{"content":"three","more":{}}`, 200, "", `{"rows":1,"dropped":0}`},
		{
			"POST /log", `[{"service":"node","content":"a"},{"service":"controller","content":"b"}]`, 200,
			"", `{"rows":2,"dropped":0}`,
		},
		{"POST /log", `[]`, 200, "", `{"rows":0,"dropped":0}`},
		{"POST /log", "", 400, "service: is required", ""},
		{"POST /log", `{"service":"../node","content":"x"}`, 400, "service: " + badName, ""},
		{
			"POST /log", `{"service":"event","content":"x"}`,
			400, "service: service event accepts only events: use POST /log/event",
			"",
		},
		{"POST /log", `{"service":7}`, 400, "service: must be a string", ""},
		{
			"POST /log", `[{"service":"node"},{"service":"node","content":[]}]`, 400,
			"rows[1].content: must be a string",
			"",
		},
		{"POST /log", `[{"service":"node"},{}]`, 400, "rows[1].service: is required", ""},
		{
			"POST /log", `[{"service":`, 400,
			"The request body is not an array of JSON objects: unexpected end of JSON input (at byte 12)", "",
		},
		{"POST /log", `[1]`, 400, "The request body is not an array of JSON objects: found number", ""},
		{
			"POST /log", `{"service":`, 400,
			"The request body is not a JSON object: unexpected end of JSON input (at byte 11)", "",
		},
		{"POST /log", "[" + strings.Repeat("{},", 1000) +
			"{}]", 400, "The request body has 1001 elements; want at most 1000", ""},
		{"POST /log/event", `{"type":"apiAction","name":"StartVM"}`, 200, "", `{"rows":1,"dropped":0}`},
		{"POST /log/event", ` [{"b":1},{"a":2}] `, 200, "", `{"rows":2,"dropped":0}`},
		{"POST /log/event", `[]`, 200, "", `{"rows":0,"dropped":0}`},
		{"POST /log/event", ``, 400, "An event must be a JSON object", ""},
		{"POST /log/event", `"text"`, 400, "An event must be a JSON object", ""},
		{"POST /log/event", `[{},7]`, 400, "events[1]: An event must be a JSON object", ""},
		{"POST /log/event", `[{}`, 400, "The request body is not an array of JSON objects", ""},
		{"GET /registry/log/services", "", 200, "", `[{"service":"controller","files":1,"size":`},
		{"GET /registry/log/files?service=node", "", 200, "", `"machine_name":"mac-1","size":`},
		{
			"GET /registry/log/files", `{"service":"event"}`, 200, "",
			`[{"service":"event","name":"event.log","machine_name":"",`,
		},
		{"GET /registry/log/files", "", 400, "service: is required", ""},
		{"GET /registry/log/files?service=../vm_dir", "", 200, notFound, ""},
		{"GET /registry/log/view?service=node&file=../event/event.log", "", 200, notFound, ""},
		{"GET /registry/log/view?service=node&lines=0", "", 400, "lines: must be an integer between 1 and 10000", ""},
		{"GET /registry/log/view", "", 400, "service: is required", ""},
		{"GET /registry/log/entries?service=none", "", 200, notFound, ""},
		{"GET /registry/log/entries", "", 400, "service: is required", ""},
		{
			"GET /registry/log/entries?service=node&level=loud", "", 400,
			"level: must be debug, info, warn or error", "",
		},
		{
			"GET /registry/log/entries?service=node&since=now", "", 400,
			"since: must be a time such as 2026-01-02T15:04:05Z", "",
		},
		{"GET /registry/log/entries?service=node&before=5", "", 400, "before: requires file", ""},
		{
			"GET /registry/log/entries?service=node&q=TWO", "", 200, "",
			`"message":"two","service":"node","machine_name":"mac-1"`,
		},
		{"GET /registry/log/entries?service=node&level=warn", "", 200, "", `{"entries":[],"complete":true,"bytes":`},
		{"GET /registry/log/entries?service=event&field=a%3D2", "", 200, "", `"fields":{"a":"2"}`},
		{
			"GET /registry/log/stream?service=node&field=x", "", 400,
			"field: must be key=value with at most 256 bytes", "",
		},
		{"GET /registry/log/stream?service=node&format=xml", "", 400, "format: must be one of text, json", ""},
		{"GET /registry/log/stream", "", 400, "service: is required", ""},
		{"GET /registry/log/stream?service=..", "", 400, "service: " + badName, ""},
		{
			"GET /registry/log/stream?service=node&lines=-1", "", 400, "lines: must be an integer between 0 and 10000",
			"",
		},
		{"GET /registry/log/page?service=%3Cscript%3E", "", 400, "service: " + badName, ""},
		{"GET /registry/log/archive", "", 400, "service: is required", ""},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		a := send(t, s, method, path, c.body)
		status := map[bool]string{true: "OK", false: "FAIL"}[c.message == ""]
		if a.code != c.code || a.Status != status || a.Message != c.message ||
			!strings.Contains(string(a.Body), c.holds) {
			t.Errorf("%s %.80s: %d %s", c.request, c.body, a.code, a.raw)
		}
	}
	raw, err := os.ReadFile(dir + "/files/central-logs/event/event.log")
	if lines := strings.Split(string(raw), "\n"); err != nil || len(lines) != 5 ||
		!strings.HasPrefix(lines[0], "Log file created at: 20") ||
		strings.Join(lines[1:], "") != `{"name":"StartVM","type":"apiAction"}{"b":1}{"a":2}` {
		t.Errorf("%s, %v", raw, err)
	}
}

// TestEventsAreLimited: both routes of the log server count the rows of a caller.
func TestEventsAreLimited(t *testing.T) {
	now := time.Now()
	reg, err := registry.Open(t.Context(), registry.Options{
		Base: t.TempDir(), Version: "1.2.3", MaxLogRows: 8, Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(rest.Handler(registryrest.Routes(reg), slog.New(slog.DiscardHandler)))
	t.Cleanup(func() {
		s.Close()
		_ = reg.Close()
	})
	for _, c := range []struct {
		path, body string
		code       int
	}{
		{"/log/event", `[{},{}]`, 200}, {"/log/event", `{}`, 429}, {"/log?service=node&content=a", "", 429},
	} {
		if a := send(t, s, "POST", c.path, c.body); a.code != c.code {
			t.Errorf("%s %s: %d %s, want %d", c.path, c.body, a.code, a.raw, c.code)
		}
	}
}

func TestLogViews(t *testing.T) {
	s, reg, _ := serveLogs(t)
	for i := range 20 {
		send(t, s, "POST", "/log", fmt.Sprintf(`{"service":"node","machine_name":"m","content":"<b>row %d</b>"}`, i))
	}
	resp, whole := fetch(t, s, "/registry/log/view?service=node")
	if strings.Count(whole, "\n") != 20 || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" ||
		resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v\n%s", resp.Header, whole)
	}
	if _, tail := fetch(t, s, "/registry/log/view?service=node&lines=2"); strings.Count(tail, "\n") != 2 ||
		!strings.HasSuffix(whole, tail) {
		t.Errorf("tail %q", tail)
	}
	files, _ := reg.Logs().Files("node")
	if resp, part := fetch(t, s, "/registry/log/view?service=node&file="+files[0].Name, "Range",
		"bytes=10-19"); part != whole[10:20] || resp.StatusCode != http.StatusPartialContent {
		t.Errorf("range %q", part)
	}
	resp, raw := fetch(t, s, "/registry/log/archive?service=node")
	zip, err := gzip.NewReader(strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	in := tar.NewReader(zip)
	head, err := in.Next()
	if err != nil || head.Name != "node/"+files[0].Name ||
		resp.Header.Get("Content-Disposition") != `attachment; filename="node.tar.gz"` {
		t.Fatalf("%+v, %v, %v", head, err, resp.Header)
	}
	if text, err := io.ReadAll(in); err != nil || string(text) != whole {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// follow opens a stream and returns its lines.
func follow(
	ctx context.Context, t *testing.T, s *httptest.Server, query, accept string,
) (*http.Response, *bufio.Reader) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/registry/log/stream?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp, bufio.NewReader(resp.Body)
}

func TestLogStreams(t *testing.T) {
	s, reg, _ := serveLogs(t)
	post := func(text string) {
		send(t, s, "POST", "/log",
			`[{"service":"other","content":"not here"},{"service":"node","machine_name":"m","host":"h","content":"`+
				text+`"}]`)
	}
	post("old")
	post("first")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, plain := follow(ctx, t, s, "service=node&lines=1", "*/*")
	if got := resp.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("type %s", got)
	}
	resp, events := follow(ctx, t, s, "service=node", "text/event-stream")
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" ||
		resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("type %s", got)
	}
	post("second\\nline")
	for _, want := range []string{" m h first\n", ` m h second\nline` + "\n"} {
		if line, err := plain.ReadString('\n'); err != nil || !strings.HasSuffix(line, want) {
			t.Errorf("%q, %v", line, err)
		}
	}
	if line, err := events.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: 20") ||
		!strings.HasSuffix(line, ` m h second\nline`+"\n") {
		t.Errorf("%q, %v", line, err)
	}
	if line, err := events.ReadString('\n'); err != nil || line != "\n" {
		t.Errorf("%q, %v", line, err)
	}
	if n := reg.Logs().Stats().Streams; n != 2 {
		t.Errorf("%d streams", n)
	}
	cancel()
	for begun := time.Now(); reg.Logs().Stats().Streams > 0; time.Sleep(time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatal("the streams outlive their clients")
		}
	}
}

// TestStreamsEndWithTheLogs: a stop does not wait for readers.
func TestStreamsEndWithTheLogs(t *testing.T) {
	s, reg, _ := serveLogs(t)
	_, in := follow(t.Context(), t, s, "service=node", "")
	if err := reg.Logs().Close(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestPages(t *testing.T) {
	s, _, _ := serveLogs(t)
	send(t, s, "POST", "/log", `{"service":"node","content":"x"}`)
	nonces := map[string]bool{}
	for path, holds := range map[string]string{
		"/": "Version 1.2.3.", "/registry/log/page": `<a href="page?service=node">node</a>`,
		"/registry/log/page?service=node&lines=7": `new EventSource("stream?service=" + encodeURIComponent("node") + "&lines=" +  7 )`,
	} {
		resp, text := fetch(t, s, path, "Accept", "text/html,*/*;q=0.8")
		policy := resp.Header.Get("Content-Security-Policy")
		_, nonce, _ := strings.Cut(policy, "'nonce-")
		nonce, _, _ = strings.Cut(nonce, "'")
		if !strings.Contains(text, holds) || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" ||
			!strings.HasPrefix(policy, "default-src 'none';") ||
			len(nonce) < 20 || nonces[nonce] || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %v\n%s", path, resp.Header, text)
		}
		nonces[nonce] = true
		for _, tag := range []string{"<style", "<script"} {
			if strings.Count(text, tag) != strings.Count(text, tag+` nonce="`+nonce+`"`) {
				t.Errorf("%s: a %s is not let run", path, tag)
			}
		}
	}
	resp, text := fetch(t, s, "/")
	if !strings.HasPrefix(text, "Buildyard registry 1.2.3\n") ||
		resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%v\n%s", resp.Header, text)
	}
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(line, "GET "); ok {
			if a := send(t, s, "GET", strings.Fields(path)[0], ""); a.code != 200 || a.Status != "OK" {
				t.Errorf("%s leads to %d %s", line, a.code, a.raw)
			}
		}
	}
	if a := send(t, s, "POST", "/", ""); a.code != http.StatusMethodNotAllowed {
		t.Errorf("%d", a.code)
	}
}

func TestFileServer(t *testing.T) {
	s, _, _ := serveLogs(t)
	const sum = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1" // of "text"
	for _, c := range []struct {
		request, body string
		code          int
		message       string
		holds         string
	}{
		{"GET /registry/files", "", 200, "", `[{"name":"central-logs","dir":true,"size":0,"modified":"`},
		{"PUT /registry/files/logs/vm/start.log?sha256=" +
			sum, "text", 200, "", `{"name":"logs/vm/start.log","size":4,"sha256":"` + sum + `"}`},
		{"PUT /registry/files/a%20b/c+d%2Be.html", "<script>", 200, "", `{"name":"a b/c+d+e.html","size":8,`},
		{"PUT /registry/files/empty", "", 200, "", `"size":0`},
		{
			"PUT /registry/files/x?sha256=" +
				sum, "other", 400,
			"sha256: checksum mismatch: the received bytes have the SHA-256 " +
				"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa",
			"",
		},
		{"PUT /registry/files/x?sha256=7", "other", 400, "sha256: must be 64 hex digits", ""},
		{
			"PUT /registry/files/central-logs/node/x.log", "x", 400,
			"name: files in central-logs are written only by the central logs", "",
		},
		{
			"PUT /registry/files/..%2f..%2fvm_dir%2fx", "x", 400,
			"name: must have parts of 1 to 255 bytes between slashes, which do not begin with a dot and have " +
				"no control characters", "",
		},
		{
			"PUT /registry/files/", "x", 400,
			"name: must have parts of 1 to 255 bytes between slashes, which do not begin with a dot and have " +
				"no control characters", "",
		},
		{"GET /registry/files?dir=logs/vm", "", 200, "", `[{"name":"start.log","dir":false,"size":4,"modified":"`},
		{"GET /registry/files?dir=logs/none", "", 200, "Not found", ""},
		{"GET /registry/files?dir=..", "", 200, "Not found", ""},
		{"GET /registry/files/x", "", 200, "Not found", ""},
		{"GET /registry/files/logs", "", 200, "Not found", ""},
		{"GET /registry/files/..%2ftemplate.json", "", 200, "Not found", ""},
		{"GET /registry/files/logs/../../x", "", 404, "No such route: GET /registry/files/logs/../../x", ""},
		{"DELETE /registry/files/logs/vm", "", 200, "The directory logs/vm is not empty", ""},
		{"DELETE /registry/files/empty", "", 200, "", ""},
		{"DELETE /registry/files/empty", "", 200, "Not found", ""},
		{
			"DELETE /registry/files/central-logs", "", 400,
			"name: files in central-logs are written only by the central logs", "",
		},
		{"POST /registry/files/x", "", 405, "Method POST is not allowed here (allowed: DELETE, GET, HEAD, PUT)", ""},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		a := send(t, s, method, path, c.body)
		status := map[bool]string{true: "OK", false: "FAIL"}[c.message == ""]
		if a.code != c.code || a.Status != status || a.Message != c.message ||
			!strings.Contains(string(a.Body), c.holds) {
			t.Errorf("%s: %d %s", c.request, a.code, a.raw)
		}
	}
	if resp, text := fetch(t, s, "/registry/files/logs/vm/start.log", "Range", "bytes=1-2"); text != "ex" ||
		resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%q, %v", text, resp.Header)
	}
	// a download that broke off continues where it was only when the file is still the same
	resp, _ := fetch(t, s, "/registry/files/logs/vm/start.log")
	tag := resp.Header.Get("ETag")
	if resp, text := fetch(t, s, "/registry/files/logs/vm/start.log", "Range", "bytes=2-", "If-Range",
		tag); text != "xt" || resp.StatusCode != http.StatusPartialContent || tag == "" {
		t.Errorf("%s %q", resp.Status, text)
	}
	if resp, _ := fetch(t, s, "/registry/files/logs/vm/start.log", "If-None-Match",
		tag); resp.StatusCode != http.StatusNotModified {
		t.Errorf("%s", resp.Status)
	}
	send(t, s, "PUT", "/registry/files/logs/vm/start.log", "longer")
	if resp, text := fetch(t, s, "/registry/files/logs/vm/start.log", "Range", "bytes=2-", "If-Range",
		tag); text != "longer" || resp.StatusCode != http.StatusOK || resp.Header.Get("ETag") == tag {
		t.Errorf("%s %q", resp.Status, text)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+"/registry/files/logs/vm/start.log",
		strings.NewReader("rest"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Range", "bytes 4-7/8")
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusBadRequest ||
		resp.Body.Close() != nil {
		t.Errorf("a part of an upload: %v, %v", resp, err)
	}
	if _, text := fetch(t, s, "/registry/files/logs/vm/start.log"); text != "longer" {
		t.Errorf("the file is %q", text)
	}
	resp, text := fetch(t, s, "/registry/files/a%20b/c+d%2Be.html")
	if text != "<script>" || resp.Header.Get("Content-Type") != "application/octet-stream" ||
		resp.Header.Get("Content-Disposition") != "attachment" ||
		resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%q, %v", text, resp.Header)
	}
}

// BenchmarkPostLog posts rows over the wire from several clients.
func BenchmarkPostLog(b *testing.B) {
	line := `{\"time\":\"2026-03-04T05:06:07Z\",\"level\":\"INFO\",\"msg\":\"instance taken up\",\"service\":\"node\"}`
	one := `{"machine_name":"m","service":"node","host":"10.0.0.1","content":"` + line + `"}`
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			s, _, _ := serveLogs(b)
			body := one
			if batch > 1 {
				body = "[" + one + strings.Repeat(","+one, batch-1) + "]"
			}
			var wrong sync.Once
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					resp, err := http.Post(s.URL+"/log", "", strings.NewReader(body))
					if err != nil || resp.StatusCode != 200 {
						wrong.Do(func() { b.Error(err) })
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			})
			b.ReportMetric(float64(batch*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
