package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// creds send a token, which the test may change.
type creds struct {
	mu      sync.Mutex
	shown   string
	next    string // the token after Renew; "": none
	err     error
	renewed int
}

func (c *creds) Authorize(r *http.Request, _ string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Header.Set("Authorization", c.shown)
	return c.err
}

func (c *creds) Renew(*http.Request, string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewed++
	again := c.next != ""
	c.shown, c.next = c.next, ""
	return again
}

// open returns a proxy for a registry, and a client of its socket.
func open(t *testing.T, dir, registry string, c *creds) (*Proxy, *http.Client) {
	t.Helper()
	p, err := Listen(t.Context(), Options{
		SocketDir: dir, RegistryAddress: func() string { return registry }, Credentials: c,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- p.Run(ctx) }()
	transport := &http.Transport{DialContext: Dialer(dir)}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
		if _, err := os.Stat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			t.Errorf("the socket is left: %v", err)
		}
	})
	return p, &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

func ask(t *testing.T, c *http.Client, method, path string, body io.Reader, header ...string) (code int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, Base+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// TestRequestsArePassedOn: requests have the node's credentials, whatever those of the caller, and
// go to the registry alone.
func TestRequestsArePassedOn(t *testing.T) {
	var seen *http.Request
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		raw, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprintf(w, "%s %s", r.URL.RequestURI(), raw)
	}))
	defer registry.Close()
	dir := filepath.Join(t.TempDir(), "run")
	_, client := open(t, dir, registry.URL+"/base/", &creds{shown: "Bearer pass"})
	code, text := ask(t, client, "PUT", "/registry/files/a%2Fb?tag=a%2Bb&x=1", strings.NewReader("content"),
		"Authorization", "Basic cm9vdDp4", "Cookie", "a=b", "X-Buildyard-User", "root", "Ssl-Client-Verify", "SUCCESS",
		"Connection", "X-Hop", "X-Hop", "1", "X-Forwarded-For", "192.0.2.1", "Proxy-Authorization", "Basic x", "Range",
		"bytes=0-1")
	if code != http.StatusTeapot || text != "/base/registry/files/a%2Fb?tag=a%2Bb&x=1 content" {
		t.Errorf("%d %s", code, text)
	}
	for header, want := range map[string]string{
		"Authorization": "Bearer pass", "Cookie": "", "X-Buildyard-User": "", "Ssl-Client-Verify": "", "X-Hop": "",
		"X-Forwarded-For":     "",
		"Proxy-Authorization": "", "Range": "bytes=0-1",
	} {
		if got := seen.Header.Get(header); got != want {
			t.Errorf("%s: %q, want %q", header, got, want)
		}
	}
	if "http://"+seen.Host != registry.URL {
		t.Errorf("asked for the host %s", seen.Host)
	}
	if code, _ := ask(t, client, "GET", "/x", nil, "Connection", "Upgrade", "Upgrade",
		"websocket"); code != http.StatusBadRequest {
		t.Errorf("an upgrade: %d", code)
	}
	// An absolute address in the request does not change its destination.
	conn, err := Dialer(dir)(t.Context(), "tcp", host+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn,
		"GET http://elsewhere.example/y HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: close\r\n\r\n")
	raw, err := io.ReadAll(conn)
	if err != nil || !bytes.Contains(raw, []byte("/base/y")) {
		t.Errorf("%s, %v", raw, err)
	}
}

// TestTheSocketIsItsOwnersAlone: only its owner can use it, and it replaces a stale one, also in a
// directory with a long name.
func TestTheSocketIsItsOwnersAlone(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(long, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(t.TempDir(), "run"), filepath.Join(long, "run")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("left"), 0o644); err != nil {
			t.Fatal(err)
		}
		switch p, err := socketPathIn(dir); {
		case err == nil:
			p.close()
		case runtime.GOOS == "linux":
			t.Fatal(err)
		default:
			t.Skip(err) // other systems cannot have a socket in a directory with a long name
		}
		_, client := open(t, dir, "http://127.0.0.1:1", &creds{})
		for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, name): 0o600} {
			if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
				t.Errorf("%s: %v, %v", path, st.Mode(), err)
			}
		}
		if code, text := ask(t, client, "GET", "/", nil); code != http.StatusBadGateway ||
			!strings.Contains(text, `"status":"FAIL"`) {
			t.Errorf("a registry that is away: %d %s", code, text)
		}
	}
}

// TestStaleCredentials: a request is repeated if possible, and otherwise the client has to repeat it.
func TestStaleCredentials(t *testing.T) {
	served := 0
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served++
		if r.Header.Get("Authorization") != "new" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"status":"FAIL","message":"Authentication Required"}`)
			return
		}
		_, _ = io.Copy(w, r.Body)
	}))
	defer registry.Close()
	for name, c := range map[string]struct {
		creds  *creds
		body   string
		code   int
		says   string
		served int
	}{
		"renewed":       {&creds{shown: "old", next: "new"}, "", 200, "", 2},
		"with a stream": {&creds{shown: "old", next: "new"}, "content", 503, "try again", 1},
		"not renewable": {&creds{shown: "old"}, "", 401, "Authentication Required", 1},
		"twice":         {&creds{shown: "old", next: "older"}, "", 401, "Authentication Required", 2},
		"none to be had": {
			&creds{err: farm.Errorf(farm.CodeUnavailable, "The controller is away")}, "", 503, "The controller is away",
			0,
		},
		"a key that is no good": {
			&creds{err: farm.Errorf(farm.CodeUnauthenticated, "No such key")}, "", 401,
			"No such key", 0,
		},
	} {
		served = 0
		_, client := open(t, filepath.Join(t.TempDir(), "run"), registry.URL, c.creds)
		var body io.Reader
		if c.body != "" {
			body = io.MultiReader(strings.NewReader(c.body)) // which cannot be read twice
		}
		if code, text := ask(t, client, "POST", "/x", body); code != c.code || !strings.Contains(text, c.says) ||
			served != c.served {
			t.Errorf("%s: %d %s, served %d times", name, code, text, served)
		}
	}
}

// TestAbout: the request that commands send before they use the proxy.
func TestAbout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := GetInfo(t.Context(), dir); err == nil {
		t.Error("a proxy that is not there answers")
	}
	open(t, dir, "https://registry.example", &creds{shown: "x"})
	if got, err := GetInfo(t.Context(), dir); err != nil || got != (Info{"https://registry.example", true}) {
		t.Errorf("%+v, %v", got, err)
	}
	none := filepath.Join(t.TempDir(), "run")
	_, client := open(t, none, "", &creds{})
	if got, err := GetInfo(t.Context(), none); err != nil || got != (Info{HasCredentials: true}) {
		t.Errorf("%+v, %v", got, err)
	}
	if code, _ := ask(t, client, "GET", "/x", nil); code != http.StatusServiceUnavailable {
		t.Errorf("without a registry: %d", code)
	}
}

// TestStreamsFlow: parts of a response and of a body are forwarded before they end.
func TestStreamsFlow(t *testing.T) {
	const piece = 1 << 20
	read, written := make(chan struct{}), make(chan struct{})
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.CopyN(io.Discard, r.Body, piece); err != nil {
			t.Error(err)
		}
		close(read)
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-written
		_, _ = io.WriteString(w, " second")
	}))
	defer registry.Close()
	_, client := open(t, filepath.Join(t.TempDir(), "run"), registry.URL, &creds{shown: "x"})
	out, in := io.Pipe()
	go func() {
		_, _ = in.Write(make([]byte, 2*piece))
		<-read
		_ = in.Close()
	}()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, Base+"/x", out)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	first := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" {
		t.Errorf("%s, %v", first, err)
	}
	close(written)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != " second" {
		t.Errorf("%s, %v", rest, err)
	}
}

// TestTransfersUseIt: the client of a registry connects to the socket, whatever the proxy settings
// of the environment.
func TestTransfersUseIt(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"OK","message":"","body":[{"id":"a","name":"b"}]}`)
	}))
	defer registry.Close()
	dir := filepath.Join(t.TempDir(), "run")
	open(t, dir, registry.URL, &creds{shown: "x"})
	c, err := transfer.New(transfer.Options{BaseURL: Base, Dial: Dialer(dir), MaxAttempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if list, err := c.ListTemplates(t.Context()); err != nil || len(list) != 1 || list[0].Name != "b" {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestOtherAddressesAreDialled: addresses that a registry refers to are not requested through the
// socket.
func TestOtherAddressesAreDialled(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	conn, err := Dialer(t.TempDir())(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
