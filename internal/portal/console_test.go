package portal_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/hv/hvtest"
)

// socket begins a WebSocket as the script of a page does.
func (w *world) socket(path string, header map[string]string) (*websocket.Conn, *http.Response, error) {
	w.t.Helper()
	h := http.Header{}
	for name, value := range header {
		h.Set(name, value)
	}
	for _, c := range w.cookies {
		h.Add("Cookie", c.String())
	}
	conn, resp, err := websocket.Dial(w.t.Context(), w.URL()+path, &websocket.DialOptions{HTTPHeader: h})
	if conn != nil {
		conn.SetReadLimit(1 << 20)
		w.t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, resp, err
}

// wantEnd reads until a console ends, and looks at the reason.
func wantEnd(t *testing.T, c *websocket.Conn, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		_, _, err := c.Read(ctx)
		if err == nil {
			continue
		}
		if closed, ok := errors.AsType[websocket.CloseError](err); !ok || !strings.Contains(closed.Reason, want) {
			t.Errorf("it ended: %v, want %q", err, want)
		}
		return
	}
}

func TestConsolePage(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	w.join("n", 1)
	id := w.start(client.StartRequest{TemplateID: debian, Name: hostile})[0]
	w.get("/instances/"+id).has(200, `href="/instances/`+id+`/console"`)
	w.get("/instances/"+id+"/console").has(200, `data-address="/api/v1/vm/console?id=`+id+`"`, "<noscript>",
		"!<script>alert", "Copy as curl")
	if err := w.API.Terminate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	w.await("its end", func() (bool, error) {
		_, err := w.API.Instance(t.Context(), id)
		return errors.Is(err, client.ErrNotFound), nil
	})
	w.get("/instances/"+id+"/console").has(404, "Instance not found")
	w.get("/instances/"+id).has(200, "!/console")
}

// TestConsole looks at screens as the page does, through controller, node link and agent.
func TestConsole(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	w.join("n", 1)
	id := w.start(client.StartRequest{TemplateID: debian})[0]
	path := "/api/v1/vm/console?id=" + id
	c, _, err := w.socket(path, map[string]string{"Origin": w.URL(), "Sec-Fetch-Site": "same-origin"})
	if err != nil {
		t.Fatal(err)
	}
	if width, height, err := hvtest.View(websocket.NetConn(t.Context(), c, websocket.MessageBinary),
		hvtest.NoPassword); err != nil || width*height == 0 {
		t.Errorf("a picture of %d x %d, %v", width, height, err)
	}
	locked := w.start(client.StartRequest{TemplateID: debian, VNCPassword: "sesame"})[0]
	screen, err := w.API.OpenConsole(t.Context(), locked)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := hvtest.View(screen, "sesame"); err != nil {
		t.Error(err)
	}
	_ = screen.Close()
	for name, x := range map[string]struct {
		path   string
		header map[string]string
		code   int
		want   string
	}{
		"a page of another site": {path, map[string]string{
			"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site",
		}, 403, "page of another site"},
		"an old browser": {
			path,
			map[string]string{"Origin": "https://evil.example"},
			403,
			"page of another site",
		},
		"nobody":     {"/api/v1/vm/console?id=nobody", nil, 200, "Not found"},
		"no session": {api.PathConsole + "?node_id=nobody&session=s", nil, 401, "Authentication Required"},
	} {
		_, resp, err := w.socket(x.path, x.header)
		if err == nil || resp == nil || resp.StatusCode != x.code {
			t.Errorf("%s: %+v, %v", name, resp, err)
			continue
		}
		text := make([]byte, 1000)
		n, _ := resp.Body.Read(text)
		if !strings.Contains(string(text[:n]), x.want) {
			t.Errorf("%s: %s", name, text[:n])
		}
	}
	w.ask("GET", path, nil, map[string]string{"Upgrade": "h2c"}).has(400, "Upgrade: must be websocket")
	if err := w.API.Terminate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, c, "is no longer running")
}

// TestConsoleMessages: a message that is not part of the screen protocol ends the console, whatever
// its size.
func TestConsoleMessages(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	w.join("n", 1)
	id := w.start(client.StartRequest{TemplateID: debian})[0]
	for name, say := range map[string]func(c *websocket.Conn) error{
		"text": func(c *websocket.Conn) error { return c.Write(t.Context(), websocket.MessageText, []byte("hello")) },
		"huge": func(c *websocket.Conn) error {
			return c.Write(t.Context(), websocket.MessageBinary, make([]byte, 2<<20))
		},
		"garbage": func(c *websocket.Conn) error {
			return c.Write(t.Context(), websocket.MessageBinary, []byte("GET / HTTP/1.1\r\n\r\n"))
		},
	} {
		c, _, err := w.socket("/api/v1/vm/console?id="+id, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = say(c)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		for err == nil {
			_, _, err = c.Read(ctx)
		}
		if ctx.Err() != nil {
			t.Errorf("%s: the console goes on", name)
		}
		cancel()
	}
	w.await("their end", func() (bool, error) {
		now, err := w.API.ConsoleOf(t.Context(), id)
		return now.Open == 0, err
	})
}

// TestConsoleNeedsPermission: a user who may only list instances learns which permission is
// missing, and one whose permission is revoked loses the open console.
func TestConsoleNeedsPermission(t *testing.T) {
	w := newGuarded(t)
	w.push(debian, "debian")
	w.join("n", 1)
	id := w.start(client.StartRequest{TemplateID: debian})[0]
	w.get("/instances/" + id + "/console").has(303)
	w.logIn()
	w.get("/instances/"+id+"/console").has(200, "data-address")
	path := "/api/v1/vm/console?id=" + id
	if _, resp, err := w.socket(path, map[string]string{"Origin": "https://evil.example"}); err == nil || resp == nil ||
		resp.StatusCode != 403 {
		t.Errorf("a page of another site: %+v, %v", resp, err)
	}
	c, _, err := w.socket(path, map[string]string{"Origin": w.URL()})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.CloseNow()
	w.await("the event", func() (bool, error) {
		list, err := w.API.Events(t.Context(), client.EventQuery{})
		return slices.ContainsFunc(list, func(e client.Event) bool {
			return e.All["route"] == "GET /api/v1/vm/console" && e.All["about"] == id
		}), err
	})
	w.cookies = nil
	if _, resp, err := w.socket(path, nil); err == nil || resp == nil || resp.StatusCode != 401 {
		t.Errorf("without a credential: %+v, %v", resp, err)
	}
	looker := w.user("looker", "list_vms", "update_vm")
	screen, err := looker.OpenConsole(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	if _, _, err := hvtest.View(screen, hvtest.NoPassword); err != nil {
		t.Fatal(err)
	}
	if err := w.API.SetPermissionGroup(t.Context(),
		api.PermissionGroup{Name: "looker", Permissions: []string{"list_vms"}}); err != nil {
		t.Fatal(err)
	}
	_ = screen.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, screen); errors.Is(err, context.DeadlineExceeded) {
		t.Error("whose permission was taken looks on")
	}
	for _, f := range []func() error{
		func() error { _, err := looker.ConsoleOf(t.Context(), id); return err },
		func() error { _, err := looker.OpenConsole(t.Context(), id); return err },
	} {
		if err := f(); !errors.Is(err, client.ErrForbidden) || !strings.Contains(err.Error(), "update_vm") {
			t.Errorf("without the permission: %v", err)
		}
	}
}

// user returns the API with the credentials of a user who has some permissions at the controller.
func (w *world) user(id string, permissions ...string) *client.Controller {
	w.t.Helper()
	err := w.API.SetPermissionGroup(w.t.Context(), api.PermissionGroup{Name: id, Permissions: permissions})
	var key client.PrivateKey
	if err == nil {
		key, err = w.API.CreateKey(w.t.Context(), api.NewKey{ID: id, TTL: 3600, Groups: []string{id}})
	}
	var creds *client.APIKey
	if err == nil {
		creds, err = client.ParseAPIKey(id, key.Reveal())
	}
	var c *client.Controller
	if err == nil {
		c, err = client.NewController(w.URL(), client.Options{Credentials: creds})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}
