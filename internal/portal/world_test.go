package portal_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/fleet"
	"github.com/buildyard/buildyard/internal/cli/buildyard/cloudtest"
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
	*cloudtest.Cloud
	t       *testing.T
	API     *client.Controller
	root    bool              // programs need the root token
	cookies []*http.Cookie    // of the browser
	header  map[string]string // of every request of the browser
}

// newWorld runs a cloud with some settings until the test ends, without nodes and templates.
func newWorld(t *testing.T, settings map[string]string) *world {
	t.Helper()
	s, end, err := cloudtest.Open(t.TempDir(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	w := &world{Cloud: s, t: t, root: settings["SVC_ROOT_TOKEN"] != ""}
	o := client.Options{}
	if w.root {
		o.Credentials = client.RootToken(settings["SVC_ROOT_TOKEN"])
	}
	if w.API, err = client.NewController(s.URL(), o); err != nil {
		t.Fatal(err)
	}
	return w
}

// newGuarded runs a cloud whose callers have to log in, and whose permissions count.
func newGuarded(t *testing.T) *world {
	t.Helper()
	return newWorld(t, guardedSettings)
}

// guardedSettings are those of a cloud whose callers have to log in.
var guardedSettings = map[string]string{
	"SVC_ENABLE_AUTH": "true", "SVC_ENABLE_API_KEYS": "true", "SVC_ENABLE_CONTROLLER_AUTHORIZATION": "true",
	"SVC_ENABLE_REGISTRY_AUTHORIZATION": "true", "SVC_ROOT_TOKEN": rootToken,
}

// join adds simulated nodes called NAME-0001 and so on, and waits until they are there.
func (w *world) join(name string, n int) []api.Node {
	w.t.Helper()
	w.t.Cleanup(w.Join(fleet.Options{
		NamePrefix: name, NodeCount: n, Capacity: 4, RealPulls: true, DataDir: w.t.TempDir(),
		USBDevices: []api.USBDevice{{Name: "phone", Location: "1-1"}},
	}))
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
	var authorize func(*http.Request) error
	if w.root {
		authorize = func(r *http.Request) error {
			return client.RootToken(rootToken).Authorize(r, client.Target{Address: w.RegistryURL()})
		}
	}
	if err := w.Push(w.t.Context(), w.t.TempDir(), id, name, authorize); err != nil {
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
	for _, more := range []map[string]string{w.header, header} {
		for name, value := range more {
			r.Header.Set(name, value)
		}
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
