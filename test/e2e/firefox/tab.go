package firefox

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Tab is a tab with a fresh profile. A browser has one at a time, so that it is in front.
type Tab struct {
	b       *Browser
	context string
	user    string
}

// Open opens a tab with a size in CSS pixels. It waits until the one before was closed.
func (b *Browser) Open(ctx context.Context, width, height int64, on Events) (t *Tab, end func(), err error) {
	b.one.Lock()
	t = &Tab{b: b}
	end = func() { t.close(); b.one.Unlock() }
	if err := t.begin(ctx, width, height, on); err != nil {
		end()
		return nil, nil, err
	}
	return t, end, nil
}

func (t *Tab) begin(ctx context.Context, width, height int64, on Events) error {
	var user struct {
		UserContext string `json:"userContext"`
	}
	if err := t.b.call(ctx, "browser.createUserContext", object{}, &user); err != nil {
		return err
	}
	t.user = user.UserContext
	var tab struct {
		Context string `json:"context"`
	}
	if err := t.b.call(ctx, "browsingContext.create", object{"type": "tab", "userContext": t.user}, &tab); err != nil {
		return err
	}
	t.context = tab.Context
	t.b.mu.Lock()
	t.b.tabs[t.context] = on
	t.b.mu.Unlock()
	if err := t.b.call(ctx, "browsingContext.activate", object{"context": t.context}, nil); err != nil {
		return err
	}
	if err := t.Media(ctx, "prefers-reduced-motion", "no-preference"); err != nil {
		return err
	}
	return t.b.call(ctx, "browsingContext.setViewport", object{
		"context": t.context, "viewport": object{"width": width, "height": height},
	}, nil)
}

// close closes the tab and deletes what it kept.
func (t *Tab) close() {
	t.b.mu.Lock()
	delete(t.b.tabs, t.context)
	t.b.mu.Unlock()
	ctx, stop := context.WithTimeout(context.Background(), startTime)
	defer stop()
	if t.context != "" {
		_ = t.Scripts(ctx, true)
		_ = t.b.call(ctx, "browsingContext.close", object{"context": t.context}, nil)
	}
	if t.user != "" {
		_ = t.b.call(ctx, "browser.removeUserContext", object{"userContext": t.user}, nil)
	}
}

// Navigate opens an address and waits until it is loaded.
func (t *Tab) Navigate(ctx context.Context, address string) error {
	if page, _, isPart := strings.Cut(address, "#"); isPart {
		if at, err := t.Evaluate(ctx, "document.URL.split('#')[0]"); err == nil && string(at) == strconv.Quote(page) {
			return t.navigate(ctx, address) // another place of the same page
		}
	}
	return t.leave(ctx, func() error { return t.navigate(ctx, address) })
}

func (t *Tab) navigate(ctx context.Context, address string) error {
	return t.b.call(ctx, "browsingContext.navigate", object{
		"context": t.context, "url": address, "wait": "complete",
	}, nil)
}

// Reload loads the page once more.
func (t *Tab) Reload(ctx context.Context) error {
	return t.leave(ctx, func() error {
		return t.b.call(ctx, "browsingContext.reload", object{"context": t.context, "wait": "complete"}, nil)
	})
}

// leave does what replaces the page, and waits until it was replaced: on a busy machine Firefox reports the end of the
// load while the page before is still there, and a second load then cancels the first.
func (t *Tab) leave(ctx context.Context, do func() error) error {
	_ = t.Run(ctx, "window.isLeft = true") // not in a page without a document
	if err := do(); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, startTime)
	defer stop()
	for {
		is, err := t.Evaluate(ctx, `!window.isLeft && document.readyState === "complete"`)
		if err == nil && string(is) == "true" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the page was not replaced: %w", errors.Join(ctx.Err(), err))
		case <-time.After(pollTime):
		}
	}
}

// Back returns to the page before.
func (t *Tab) Back(ctx context.Context) error {
	return t.b.call(ctx, "browsingContext.traverseHistory", object{"context": t.context, "delta": -1}, nil)
}

// value is a remote value.
type value struct {
	Type     string          `json:"type"`
	Value    json.RawMessage `json:"value"`
	SharedID string          `json:"sharedId"`
}

// evaluate evaluates an expression in a browsing context.
func (t *Tab) evaluate(ctx context.Context, in, expression string) (v value, err error) {
	var reply struct {
		Type    string `json:"type"`
		Result  value  `json:"result"`
		Details struct {
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	err = t.b.call(ctx, "script.evaluate", object{
		"expression": expression, "target": object{"context": in}, "awaitPromise": true, "userActivation": true,
	}, &reply)
	if err == nil && reply.Type == "exception" {
		err = errors.New(reply.Details.Text)
	}
	return reply.Result, err
}

// Run runs statements.
func (t *Tab) Run(ctx context.Context, script string) error {
	_, err := t.evaluate(ctx, t.context, script+"\n;undefined")
	return err
}

// Evaluate returns the JSON of an expression, or of what the promise of it resolves to.
func (t *Tab) Evaluate(ctx context.Context, expression string) ([]byte, error) {
	// Without scripts a page runs no reactions of promises, so that there is a promise only where there has to be one.
	v, err := t.evaluate(ctx, t.context, "(() => { const v = ("+expression+`), text = (v) => JSON.stringify(v ?? null);
		return v instanceof Promise ? v.then(text) : text(v); })()`)
	if err != nil {
		return nil, err
	}
	var text string
	err = json.Unmarshal(v.Value, &text)
	return []byte(text), err
}

// element finds the element of a CSS selector and scrolls to it.
func (t *Tab) element(ctx context.Context, selector string) (id string, err error) {
	if err := t.still(ctx, selector); err != nil {
		return "", err
	}
	v, err := t.evaluate(ctx, t.context, fmt.Sprintf("document.querySelector(%q)", selector))
	if err == nil && v.SharedID == "" {
		err = fmt.Errorf("could not find node %s", selector)
	}
	return v.SharedID, err
}

// still scrolls an element into view, and waits until it is twice in the same place: a font or a picture that arrives
// late moves what is below it.
func (t *Tab) still(ctx context.Context, selector string) error {
	before := ""
	for ctx.Err() == nil {
		v, err := t.evaluate(ctx, t.context, fmt.Sprintf(`(() => {
			const e = document.querySelector(%q);
			if (!e) return "";
			e.scrollIntoView({block: "center", behavior: "instant"});
			const r = e.getBoundingClientRect();
			return [document.fonts.status, r.x, r.y, r.width, r.height].join(" ");
		})()`, selector))
		if err != nil {
			return err
		}
		var now string
		if err := json.Unmarshal(v.Value, &now); err != nil {
			return err
		}
		if now == before {
			return nil
		}
		before = now
	}
	return context.Cause(ctx)
}

// act performs actions of one input device.
func (t *Tab) act(ctx context.Context, kind string, actions []object) error {
	return t.b.call(ctx, "input.performActions", object{"context": t.context, "actions": []object{
		{"type": kind, "id": kind, "actions": actions},
	}}, nil)
}

// Click clicks the element of a CSS selector.
func (t *Tab) Click(ctx context.Context, selector string) error {
	id, err := t.element(ctx, selector)
	if err != nil {
		return err
	}
	return t.act(ctx, "pointer", []object{
		{
			"type": "pointerMove", "x": 0, "y": 0,
			"origin": object{"type": "element", "element": object{"sharedId": id}},
		},
		{"type": "pointerDown", "button": 0},
		{"type": "pointerUp", "button": 0},
	})
}

// PointAway moves the pointer into the corner of the page.
func (t *Tab) PointAway(ctx context.Context) error {
	return t.act(ctx, "pointer", []object{{"type": "pointerMove", "x": 1, "y": 1}})
}

// keyCodes are the key values of WebDriver for characters that are keys without a text.
var keyCodes = map[rune]string{'\r': "\uE006", '\t': "\uE004", '\b': "\uE003", '\x1b': "\uE00C"}

// Type presses keys in the element of a CSS selector; without one where the focus is.
func (t *Tab) Type(ctx context.Context, selector, keys string) error {
	if selector != "" {
		if _, err := t.element(ctx, selector); err != nil {
			return err
		}
		if err := t.Run(ctx, fmt.Sprintf(`{ const e = document.querySelector(%q); e.focus(); `+
			`if (e.setSelectionRange) try { e.setSelectionRange(e.value.length, e.value.length) } catch {} }`,
			selector)); err != nil {
			return err
		}
	}
	var actions []object
	for _, r := range keys {
		key, ok := keyCodes[r]
		if !ok {
			key = string(r)
		}
		actions = append(actions, object{"type": "keyDown", "value": key}, object{"type": "keyUp", "value": key})
	}
	return t.act(ctx, "key", actions)
}

// Screenshot returns a PNG of what is visible.
func (t *Tab) Screenshot(ctx context.Context) ([]byte, error) {
	var picture struct {
		Data string `json:"data"`
	}
	if err := t.b.call(ctx, "browsingContext.captureScreenshot", object{"context": t.context}, &picture); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(picture.Data)
}

// Media sets a media feature; this browser knows only prefers-reduced-motion, in addition to its color scheme.
func (t *Tab) Media(ctx context.Context, name, value string) error {
	if name != "prefers-reduced-motion" {
		return fmt.Errorf("the media feature %s cannot be set in Firefox", name)
	}
	_, err := t.evaluate(ctx, t.b.chrome, fmt.Sprintf(`Services.prefs.setIntPref("ui.prefersReducedMotion", %d)`,
		strings.Count(value, "reduce")))
	return err
}

// Scripts lets the scripts of pages run, or not. Those of a page that was opened without them stay away.
func (t *Tab) Scripts(ctx context.Context, run bool) error {
	_, err := t.evaluate(ctx, t.b.chrome, fmt.Sprintf(
		`for (const tab of gBrowser.tabs) tab.linkedBrowser.browsingContext.allowJavascript = %t`, run))
	return err
}

// Cookies returns the cookies that a tab has: how many, and whether each is HttpOnly and SameSite=Strict.
func (t *Tab) Cookies(ctx context.Context, _ string) (n int, strict bool, err error) {
	var got struct {
		Cookies []struct {
			HTTPOnly bool   `json:"httpOnly"`
			SameSite string `json:"sameSite"`
		} `json:"cookies"`
	}
	err = t.b.call(ctx, "storage.getCookies", object{
		"partition": object{"type": "context", "context": t.context},
	}, &got)
	strict = true
	for _, c := range got.Cookies {
		strict = strict && c.HTTPOnly && c.SameSite == "strict"
	}
	return len(got.Cookies), strict, err
}
