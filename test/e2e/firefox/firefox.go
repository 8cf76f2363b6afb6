// Package firefox starts Firefox and uses its tabs over WebDriver BiDi, in the way in which package chromium does that
// with Chromium.
//
// It does not install one: scripts/need.sh e2e does. It is not a client of all of WebDriver: it has what flows need.
//
// Invariant: the browser uses only its own profile, and makes no connections automatically.
package firefox

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

// Browser is a running Firefox.
type Browser struct {
	command *exec.Cmd
	conn    *websocket.Conn
	chrome  string // the browsing context of the browser's own window
	one     sync.Mutex

	mu      sync.Mutex // guards the fields below
	last    int
	waiting map[int]chan<- message
	tabs    map[string]Events // by browsing context
	broken  error
}

// Events are what a tab reports while it is open. The functions are called from another goroutine.
type Events struct {
	Wrote     func(text string)    // an error or a warning into the console
	Requested func(address string) // a request
}

// message is a reply to a command, or an event.
type message struct {
	ID      int             `json:"id"`
	Type    string          `json:"type"`
	Method  string          `json:"method"`
	Error   string          `json:"error"`
	Message string          `json:"message"`
	Result  json.RawMessage `json:"result"`
	Params  json.RawMessage `json:"params"`
}

const (
	startTime  = time.Minute
	pollTime   = 20 * time.Millisecond
	replyLimit = 64 << 20 // bytes of a reply; a screenshot is the largest
)

// preferences of a profile: a color scheme (0 is dark, 1 is light), and no connections without being asked.
const preferences = `user_pref("layout.css.prefers-color-scheme.content-override", %d);
user_pref("ui.prefersReducedMotion", 0);
user_pref("browser.startup.homepage", "about:blank");
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("browser.safebrowsing.update.enabled", false);
user_pref("app.update.enabled", false);
user_pref("app.normandy.enabled", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("toolkit.telemetry.enabled", false);
user_pref("extensions.update.enabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("network.prefetch-next", false);
user_pref("network.dns.disablePrefetch", true);
user_pref("services.settings.server", "data:,none");
user_pref("dom.disable_open_during_load", false);
`

// Start starts a Firefox with a color scheme ("light" or "dark") and a profile below a directory. A
// returned browser must be ended.
func Start(ctx context.Context, dir, theme string) (b *Browser, err error) {
	profile := filepath.Join(dir, "firefox-"+theme)
	if err := os.MkdirAll(profile, 0o700); err != nil {
		return nil, err
	}
	light := 1
	if theme == "dark" {
		light = 0
	}
	if err := os.WriteFile(filepath.Join(profile, "user.js"), fmt.Appendf(nil, preferences, light), 0o600); err != nil {
		return nil, err
	}
	b = &Browser{waiting: map[int]chan<- message{}, tabs: map[string]Events{}}
	b.command = exec.CommandContext(ctx, "firefox-esr", "--headless", "--no-remote",
		"--profile", profile, "--remote-debugging-port", "0", "--remote-allow-system-access", "about:blank")
	b.command.Env = append(os.Environ(), "HOME="+profile, "MOZ_CRASHREPORTER_DISABLE=1")
	out, err := b.command.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := b.command.Start(); err != nil {
		return nil, fmt.Errorf("starting Firefox: %w", err)
	}
	limited, stop := context.WithTimeout(ctx, startTime)
	defer stop()
	if err := b.connect(limited, out); err != nil {
		b.End()
		return nil, fmt.Errorf("starting Firefox: %w", err)
	}
	return b, nil
}

// connect begins a session at the address that the browser prints.
func (b *Browser) connect(ctx context.Context, out io.Reader) (err error) {
	address := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if _, at, ok := strings.Cut(lines.Text(), "BiDi listening on "); ok {
				address <- strings.TrimSpace(at)
			}
		}
	}()
	select {
	case at := <-address:
		if b.conn, _, err = websocket.Dial(ctx, at+"/session", nil); err != nil {
			return err
		}
	case <-ctx.Done():
		return errors.New("it printed no address for remote control")
	}
	b.conn.SetReadLimit(replyLimit)
	go b.read(context.WithoutCancel(ctx))
	if err := b.call(ctx, "session.new", object{"capabilities": object{}}, nil); err != nil {
		return err
	}
	if err := b.call(ctx, "session.subscribe", object{
		"events": []string{"log.entryAdded", "network.beforeRequestSent"},
	}, nil); err != nil {
		return err
	}
	var windows struct {
		Contexts []struct {
			Context string `json:"context"`
		} `json:"contexts"`
	}
	err = b.call(ctx, "browsingContext.getTree", object{"moz:scope": "chrome"}, &windows)
	if err == nil && len(windows.Contexts) == 0 {
		err = errors.New("it has no window")
	}
	if err != nil {
		return err
	}
	b.chrome = windows.Contexts[0].Context
	return nil
}

// End ends the browser.
func (b *Browser) End() {
	if b.conn != nil {
		_ = b.conn.CloseNow()
	}
	_ = b.command.Process.Kill()
	_ = b.command.Wait()
}

type object = map[string]any

// call runs a command and decodes its result.
func (b *Browser) call(ctx context.Context, method string, params, result any) error {
	reply := make(chan message, 1)
	b.mu.Lock()
	b.last++
	id, broken := b.last, b.broken
	b.waiting[id] = reply
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.waiting, id)
		b.mu.Unlock()
	}()
	if broken != nil {
		return broken
	}
	// The context of a caller must not close the connection in the middle of a message.
	if err := wsjson.Write(context.WithoutCancel(ctx), b.conn,
		object{"id": id, "method": method, "params": params}); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m := <-reply:
		if m.Type != "success" {
			return fmt.Errorf("%s: %s: %s", method, m.Error, m.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
}

// read passes replies to their callers, and events to their tabs, until the connection ends.
func (b *Browser) read(ctx context.Context) {
	for {
		var m message
		err := wsjson.Read(ctx, b.conn, &m)
		b.mu.Lock()
		if err != nil {
			b.broken = fmt.Errorf("the connection to Firefox: %w", err)
			for _, reply := range b.waiting {
				reply <- message{Type: "error", Error: "connection", Message: err.Error()}
			}
			b.mu.Unlock()
			return
		}
		if reply, ok := b.waiting[m.ID]; ok && m.Type != "event" {
			delete(b.waiting, m.ID)
			reply <- m
		}
		b.mu.Unlock()
		if m.Type == "event" {
			b.report(m)
		}
	}
}

// report tells a tab of an event.
func (b *Browser) report(m message) {
	var e struct {
		Context string `json:"context"`
		Source  struct {
			Context string `json:"context"`
		} `json:"source"`
		Level   string `json:"level"`
		Text    string `json:"text"`
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
	}
	if json.Unmarshal(m.Params, &e) != nil {
		return
	}
	b.mu.Lock()
	on, ok := b.tabs[cmp.Or(e.Context, e.Source.Context)]
	b.mu.Unlock()
	switch {
	case !ok:
	case m.Method == "network.beforeRequestSent":
		on.Requested(e.Request.URL)
	case e.Level == "error" || e.Level == "warn":
		on.Wrote(e.Level + ": " + e.Text)
	}
}
