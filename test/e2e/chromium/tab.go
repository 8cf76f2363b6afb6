package chromium

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// Tab is a tab with a fresh profile. Its methods take a context that comes from Open.
type Tab struct{ theme string }

// Events are what a tab reports while it is open. The functions are called from several goroutines.
type Events struct {
	Wrote     func(text string)    // an error or a warning into the console
	Requested func(address string) // a request
}

// Open opens a tab of a started browser with a color scheme ("light" or "dark") and a size in CSS pixels.
func Open(browser context.Context, theme string, width, height int64, on Events) (
	tab context.Context, t *Tab, end func(), err error,
) {
	tab, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t = &Tab{theme}
	if err := t.begin(tab, width, height, on); err != nil {
		cancel()
		return nil, nil, nil, err
	}
	return tab, t, cancel, nil
}

func (t *Tab) begin(ctx context.Context, width, height int64, on Events) error {
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, height)); err != nil {
		return err
	}
	if err := t.Media(ctx, "prefers-reduced-motion", "no-preference"); err != nil {
		return err
	}
	// Tabs are used side by side, and each is as if it were in front.
	if _, err := chromedp.Call(ctx, emulation.SetFocusEmulationEnabled,
		emulation.SetFocusEmulationEnabledParams{Enabled: true}); err != nil {
		return err
	}
	messages, requests := chromedp.Console(ctx), chromedp.Events(ctx, network.RequestWillBeSent)
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		return err
	}
	loud := []chromedp.ConsoleType{chromedp.ConsoleError, chromedp.ConsoleWarning, chromedp.ConsoleException}
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if slices.Contains(loud, m.Type) {
				on.Wrote(m.String())
			}
		}
	}()
	go func() {
		for r, err := range requests {
			if err != nil {
				return
			}
			on.Requested(r.Request.URL)
		}
	}()
	return nil
}

// Navigate opens an address and waits until it is loaded.
func (t *Tab) Navigate(ctx context.Context, address string) error {
	return chromedp.Do(ctx, chromedp.Navigate(address))
}

// Reload loads the page once more.
func (t *Tab) Reload(ctx context.Context) error { return chromedp.Do(ctx, chromedp.Reload()) }

// Back returns to the page before.
func (t *Tab) Back(ctx context.Context) error { return chromedp.Do(ctx, chromedp.NavigateBack()) }

// Run runs statements.
func (t *Tab) Run(ctx context.Context, script string) error {
	return chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](script))
}

// Evaluate returns the JSON of an expression, or of what the promise of it resolves to.
func (t *Tab) Evaluate(ctx context.Context, expression string) ([]byte, error) {
	return chromedp.Run(ctx, chromedp.Evaluate[json.RawMessage](expression, chromedp.EvalAwaitPromise))
}

// Click clicks the element of a CSS selector, in the middle of the window, where no bar covers it.
func (t *Tab) Click(ctx context.Context, selector string) error {
	if err := t.Run(ctx, fmt.Sprintf(`document.querySelector(%q)?.scrollIntoView({block: "center", behavior: "instant"})`,
		selector)); err != nil {
		return err
	}
	return chromedp.Do(ctx, chromedp.Click(chromedp.CSS(selector)))
}

// Type presses keys in the element of a CSS selector; without one where the focus is.
func (t *Tab) Type(ctx context.Context, selector, keys string) error {
	if selector == "" {
		return chromedp.Do(ctx, chromedp.KeyEvent(keys))
	}
	return chromedp.Do(ctx, chromedp.SendKeys(chromedp.CSS(selector), keys))
}

// PointAway moves the pointer into the corner of the page.
func (t *Tab) PointAway(ctx context.Context) error {
	_, err := chromedp.Call(ctx, input.DispatchMouseEvent,
		input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: 1, Y: 1})
	return err
}

// Screenshot returns a PNG of what is visible.
func (t *Tab) Screenshot(ctx context.Context) ([]byte, error) {
	return chromedp.Run(ctx, chromedp.CaptureScreenshot())
}

// Media sets a media feature, in addition to the color scheme.
func (t *Tab) Media(ctx context.Context, name, value string) error {
	features := []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: t.theme}, {Name: name, Value: value},
	}
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
	return err
}

// Scripts lets the scripts of pages run, or not. Those of a page that was opened without them stay away.
func (t *Tab) Scripts(ctx context.Context, run bool) error {
	_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: !run})
	return err
}

// Cookies returns the cookies that are sent to an address: how many, and whether each is HttpOnly and SameSite=Strict.
func (t *Tab) Cookies(ctx context.Context, address string) (n int, strict bool, err error) {
	got, err := chromedp.Call(ctx, network.GetCookies, network.GetCookiesParams{URLs: []string{address}})
	if err != nil {
		return 0, false, err
	}
	strict = true
	for _, c := range got.Cookies {
		strict = strict && c.HTTPOnly && c.SameSite == network.CookieSameSiteStrict
	}
	return len(got.Cookies), strict, nil
}
