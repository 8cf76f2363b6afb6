package portal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/fleet"
	"github.com/buildyard/buildyard/internal/cli/buildyard"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/transfer"
)

// The templates of the clouds, with the tags v1 and v2.
const (
	debian = "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032"
	spare  = "0f1a9a44-1d5c-4f5a-8f0e-8e2a7a5b6c01"
)

// hostile is text that must never act on a page.
const hostile = `<script>alert("1")</script>'"><img src=x onerror=alert(2)>`

// rootToken is the root token of guarded clouds.
const rootToken = "the root token of the tests"

// world is a cloud in this process with its portal: controller, registry, simulated nodes.
type world struct {
	*buildyard.ControllerService
	t       *testing.T
	API     *client.Controller
	cookies []*http.Cookie // of whoever looks
}

// newWorld runs a cloud with some settings until the test ends, without nodes and templates.
func newWorld(t *testing.T, settings map[string]string) *world {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{
		"SVC_LISTEN_ADDR": "127.0.0.1:0", "SVC_REGISTRY_LISTEN_ADDRESS": "127.0.0.1:0", "SVC_INSTANCE_TIME_OUT": "1s", "SVC_LOCAL_LISTEN_ADDR": "127.0.0.1:0",
		"SVC_DATA_DIR": filepath.Join(dir, "controller"), "SVC_REGISTRY_BASE_PATH": filepath.Join(dir, "registry"),
		"SVC_ENABLE_EVENT_LOGGING": "true", "SVC_ENABLE_CENTRAL_LOGGING": "true",
	}
	maps.Copy(all, settings)
	s := &buildyard.ControllerService{Stderr: io.Discard, WithRegistry: true}
	err := s.ParseFlags(config.Sources{Env: func(key string) (string, bool) {
		v, ok := all[key]
		return v, ok
	}})
	if err == nil {
		err = s.Open(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	background(t, s.Run)
	t.Cleanup(func() { _ = s.Close() })
	w := &world{ControllerService: s, t: t}
	o := client.Options{}
	if all["SVC_ROOT_TOKEN"] != "" {
		o.Credentials = client.RootToken(all["SVC_ROOT_TOKEN"])
	}
	if w.API, err = client.NewController(s.URL(), o); err != nil {
		t.Fatal(err)
	}
	return w
}

// newGuarded runs a cloud whose callers have to log in, and whose permissions count.
func newGuarded(t *testing.T) *world {
	t.Helper()
	return newWorld(t, map[string]string{
		"SVC_ENABLE_AUTH": "true", "SVC_ENABLE_API_KEYS": "true", "SVC_ENABLE_CONTROLLER_AUTHORIZATION": "true",
		"SVC_ENABLE_REGISTRY_AUTHORIZATION": "true", "SVC_ROOT_TOKEN": rootToken,
	})
}

// background runs what ends with its context, until the test ends. It is ended before what
// was begun earlier.
func background(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// join adds simulated nodes called NAME-0001 and so on, and waits until they are there.
func (w *world) join(name string, n int) []api.Node {
	w.t.Helper()
	o := fleet.Options{
		Name: name, Nodes: n, Capacity: 4, RealPull: true, DataDir: w.t.TempDir(), USB: []api.USBDevice{{Name: "phone", Location: "1-1"}},
		Controller: w.URL(), Token: w.JoinToken(), Logger: slog.New(slog.DiscardHandler), Version: "test",
	}
	background(w.t, func(ctx context.Context) error { return fleet.Run(ctx, o) })
	var list []api.Node
	w.await("nodes", func() (ok bool, err error) {
		list, err = w.API.Nodes(w.t.Context(), client.ListOptions{Filter: "state:active name:" + name + "*"})
		return len(list) == n, err
	})
	return list
}

// push puts two versions of a template into the registry.
func (w *world) push(id, name string) {
	w.t.Helper()
	store, err := transfer.New(transfer.Options{BaseURL: w.RegistryURL()})
	if err != nil {
		w.t.Fatal(err)
	}
	defer store.Close()
	settings, err := json.Marshal(api.TemplateConfig{
		RAM: "256M", CPU: &api.ConfigCPU{Cores: 1}, Firmware: &api.ConfigBoot{Type: "bios"},
		HardDrives:   []api.ConfigDrive{{Controller: "virtio-blk", File: "disk.img", Format: "raw"}},
		NetworkCards: []api.ConfigNIC{{Mode: "shared"}},
	})
	disk := filepath.Join(w.t.TempDir(), "disk")
	for _, tag := range []string{"v1", "v2"} {
		if err == nil {
			err = os.WriteFile(disk, []byte(tag), 0o600)
		}
		if err == nil {
			_, err = store.Push(w.t.Context(), transfer.PushOptions{
				Request: api.PushRequest{ID: id, Name: name, Tag: tag, Arch: "amd64", Config: settings},
				Files:   []transfer.PushFile{{Name: "disk.img", Path: disk, Kind: api.FileDisk, Format: "raw"}},
			})
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// start starts instances and waits until all of them run.
func (w *world) start(r client.StartRequest) []string {
	w.t.Helper()
	ids, err := w.API.Start(w.t.Context(), r)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, id := range ids {
		w.await("the instance", func() (bool, error) {
			inst, err := w.API.Instance(w.t.Context(), id)
			return inst.InstanceState == "Started", err
		})
	}
	return ids
}

// await waits for something.
func (w *world) await(what string, is func() (bool, error)) {
	w.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		ok, err := is()
		if ok && err == nil {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("waited for %s: %v", what, err)
		}
	}
}

// shown is a page that a browser got.
type shown struct {
	t      *testing.T
	Code   int
	Header http.Header
	Text   string
}

// get looks at a page, without going where it leads.
func (w *world) get(path string) shown { return w.ask("GET", path, nil, nil) }

// post sends a form.
func (w *world) post(path string, form url.Values) shown { return w.ask("POST", path, form, nil) }

// ask is get or post with headers.
func (w *world) ask(method, path string, form url.Values, header map[string]string) shown {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.URL()+path, strings.NewReader(form.Encode()))
	if err != nil {
		w.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	for _, c := range w.cookies {
		r.AddCookie(c)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return shown{w.t, answer.StatusCode, answer.Header, string(text)}
}

// logIn logs in by the root token; the cookies count from now on.
func (w *world) logIn() {
	w.t.Helper()
	s := w.post("/login", url.Values{"token": {rootToken}})
	w.cookies = (&http.Response{Header: s.Header}).Cookies()
	if len(w.cookies) == 0 {
		w.t.Fatalf("logging in gave no cookie: %d %s", s.Code, s.Text)
	}
}

// has checks the code of a page, and that it holds texts; those with "!" before them are
// nowhere in it.
func (s shown) has(code int, texts ...string) {
	s.t.Helper()
	if s.Code != code {
		s.t.Errorf("answered %d, not %d: %.300s", s.Code, code, s.Text)
	}
	for _, text := range texts {
		if without, not := strings.CutPrefix(text, "!"); not && strings.Contains(s.Text, without) {
			s.t.Errorf("%q is on the page", without)
		} else if !not && !strings.Contains(s.Text, text) {
			s.t.Errorf("%q is not on the page:\n%s", text, s.main())
		}
	}
}

// main is what a page is about, without what every page has.
func (s shown) main() string {
	_, text, _ := strings.Cut(s.Text, "<main")
	return fmt.Sprintf("%.6000s", text)
}
