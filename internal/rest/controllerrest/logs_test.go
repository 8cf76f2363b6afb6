package controllerrest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/registry/files"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
)

// withRegistry returns the address of a controller that passes logs and files on to a real registry, which notes
// what credentials reach it.
func withRegistry(t *testing.T) (url string, reg *registry.Registry, c *cloud, secrets *[]string) {
	t.Helper()
	reg, err := registry.Open(t.Context(), registry.Options{Base: t.TempDir(), Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	routes := rest.Handler(registryrest.Routes(reg), log)
	secrets = &[]string{}
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Authorization", "Cookie", "Ssl-Client-Verify", "Ssl-Client-Cert"} {
			*secrets = append(*secrets, r.Header.Values(name)...)
		}
		w.Header().Set("Set-Cookie", "buildyard_session=x")
		routes.ServeHTTP(w, r)
	}))
	c = newCloud(t)
	front := httptest.NewServer(controllerrest.Handler(controllerrest.Options{
		Controller: c.Controller, RequestTimeout: time.Minute, Logger: log, RegistryAddress: behind.URL + "/",
	}))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
		behind.CloseClientConnections()
		behind.Close()
		_ = reg.Close()
	})
	return front.URL, reg, c, secrets
}

// get sends a request as a client with credentials and returns the response.
func get(ctx context.Context, t *testing.T, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("root", "secret")
	req.Header.Set("Ssl-Client-Verify", "SUCCESS")
	req.Header.Set("Ssl-Client-Cert", "secret")
	req.AddCookie(&http.Cookie{Name: "session", Value: "secret"})
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestLogsThroughTheController(t *testing.T) {
	url, reg, c, secrets := withRegistry(t)
	if _, err := reg.Logs().Append([]api.LogRow{
		{Service: "node", MachineName: "m", Content: "one"}, {Service: "node", MachineName: "m", Content: "two"},
	}); err != nil {
		t.Fatal(err)
	}
	const vm, other = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000001"
	for _, name := range []string{"logs/" + vm + "/20260304T050607.000Z-start.log", "logs/" + vm +
		"/20260304T050608.000Z-save.log", "a b/ü+%2F.log"} {
		if _, err := reg.Files().StoreFile(
			files.Upload{Name: name, Body: strings.NewReader("text of " + name)}); err != nil {
			t.Fatal(err)
		}
	}
	live := c.start("")
	for _, tt := range []struct {
		path  string
		code  int
		kind  string
		holds string
	}{
		{"/api/v1/log/services", 200, "application/json", `"body":[{"service":"node","files":1,`},
		{"/api/v1/log/files?service=node", 200, "application/json", `"machine_name":"m"`},
		{"/api/v1/log/files?service=no", 200, "application/json", `{"status":"FAIL","message":"Not found"}`},
		{"/api/v1/log/files", 400, "application/json", `service: is required`},
		{"/api/v1/log/view?service=node&lines=1", 200, "text/plain; charset=utf-8", " m - two\n"},
		{"/api/v1/log/page?service=node", 200, "text/html; charset=utf-8", `new EventSource("stream?service="`},
		{"/api/v1/log/archive?service=node", 200, "application/gzip", "\x1f\x8b"},
		{"/api/v1/registry/files?dir=logs", 200, "application/json", `[{"name":"` + vm + `","dir":true,`},
		{"/api/v1/registry/files/a%20b/%C3%BC+%252F.log", 200, "text/plain; charset=utf-8", "text of a b/ü+%2F.log"},
		{"/api/v1/registry/files/..%2fvm_dir", 200, "application/json", "Not found"},
		{"/api/v1/registry/files/x%3Fdir=y", 200, "application/json", "Not found"},
		{
			"/api/v1/vm/logs?id=" + vm, 200, "application/json",
			`{"status":"OK","message":"","body":[{"name":"20260304T050607.000Z-start.log","dir":false,"size":`,
		},
		{"/api/v1/vm/logs?id=" + strings.ToUpper(vm) +
			"&file=20260304T050608.000Z-save.log", 200, "text/plain; charset=utf-8", "text of logs/" + vm},
		{"/api/v1/vm/logs?id=" + vm + "&file=..%2f..%2fa%20b", 200, "application/json", "Not found"},
		{"/api/v1/vm/logs?id=" + vm + "&file=..", 200, "application/json", "Not found"},
		{"/api/v1/vm/logs?id=" + live, 200, "application/json", `{"status":"OK","message":"","body":[]}`},
		{"/api/v1/vm/logs?id=" + other, 200, "application/json", `{"status":"FAIL","message":"Not found"}`},
		{"/api/v1/vm/logs?id=debian", 200, "application/json", "Not found"},
		{"/api/v1/vm/logs", 400, "application/json", "id: is required"},
	} {
		resp := get(t.Context(), t, url+tt.path)
		raw, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != tt.code || resp.Header.Get("Content-Type") != tt.kind ||
			!strings.Contains(string(raw), tt.holds) || len(resp.Header.Values("X-Request-Id")) != 1 {
			t.Errorf("%s: %v, %s %v %.300s", tt.path, err, resp.Status, resp.Header, raw)
		}
	}
	for path, want := range map[string]string{
		"/api/v1/log/view?service=node": "sandbox",
		"/api/v1/registry/files/no":     "sandbox", "/api/v1/log/page?service=node": "default-src 'none'",
	} {
		h := get(t.Context(), t, url+path).Header
		if !strings.HasPrefix(h.Get("Content-Security-Policy"), want) || h.Get("X-Content-Type-Options") != "nosniff" ||
			h["Set-Cookie"] != nil {
			t.Errorf("%s: %v", path, h)
		}
	}
	if len(*secrets) > 0 {
		t.Errorf("the registry was given %v", *secrets)
	}
}

func TestAStreamThroughTheController(t *testing.T) {
	url, reg, _, _ := withRegistry(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp := get(ctx, t, url+"/api/v1/log/stream?service=node")
	in := bufio.NewReader(resp.Body)
	for i := range 3 {
		if _, err := reg.Logs().Append([]api.LogRow{{Service: "node", Content: fmt.Sprint("row ", i)}}); err != nil {
			t.Fatal(err)
		}
		if line, err := in.ReadString('\n'); err != nil || !strings.HasSuffix(line, fmt.Sprint(" row ", i, "\n")) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	cancel()
	for begun := time.Now(); reg.Logs().Stats().Streams > 0; time.Sleep(time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatal("the stream outlives its client")
		}
	}
}

func TestNoRegistryForLogs(t *testing.T) {
	c := newCloud(t)
	for registry, message := range map[string]string{
		"":                   "No registry is configured at this controller",
		"http://127.0.0.1:1": "The registry at http://127.0.0.1:1 cannot be reached; try again",
	} {
		s := httptest.NewServer(controllerrest.Handler(controllerrest.Options{
			Controller:     c.Controller,
			RequestTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler), RegistryAddress: registry,
		}))
		defer s.Close()
		for _, path := range []string{
			"/api/v1/log/services", "/api/v1/registry/files/x",
			"/api/v1/vm/logs?id=aaaaaaaa-0000-4000-8000-000000000001&file=x",
		} {
			resp := get(t.Context(), t, s.URL+path)
			raw, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(raw), message) {
				t.Errorf("%s with %q: %s %s", path, registry, resp.Status, raw)
			}
		}
	}
}
