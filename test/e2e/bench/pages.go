package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/e2e/chromium"
	"github.com/buildyard/buildyard/test/rig"
)

// firsts measures pages as they are asked for first.
func (b *bench) firsts(ctx context.Context, s *stage) error {
	return b.looks(ctx, s, sight.first, func(v *visitor, path string) ([]byte, time.Duration, error) {
		return v.get(ctx, path, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
	})
}

// refreshes measures what keeps pages fresh.
func (b *bench) refreshes(ctx context.Context, s *stage) error {
	return b.looks(ctx, s, sight.refresh, func(v *visitor, path string) ([]byte, time.Duration, error) {
		return v.refresh(ctx, path)
	})
}

// pace is how long nothing is asked for between two looks.
const pace = 100 * time.Millisecond

// looks takes turns between the pages.
func (b *bench) looks(
	ctx context.Context, s *stage, name func(sight) string, get func(*visitor, string) ([]byte, time.Duration, error),
) error {
	v := s.visitor()
	defer v.http.CloseIdleConnections()
	for i := range looks + 1 { // the first is for the connection
		for _, at := range sights {
			text, took, err := get(v, at.path)
			if err != nil {
				return err
			}
			if i > 0 && b.Wants(name(at)) {
				b.Add(name(at), ms(took))
				b.Note(name(at), "median %.1f ms, %.0f kB", row.Median(b.Figure(name(at)).Samples),
					float64(len(text))/1000)
			}
			if !rig.Pause(ctx, pace) {
				return context.Cause(ctx)
			}
		}
	}
	for _, at := range sights {
		if f := b.Figure(name(at)); len(f.Samples) > 0 {
			b.Say("%s: p95 %.1f ms; %s", f.Name, row.Quantile(f.Samples, 0.95), f.Note)
		}
	}
	return nil
}

// ms returns a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// paints measures how soon a browser that has nothing of the portal shows a page.
func (b *bench) paints(ctx context.Context, s *stage) error {
	browser, end, err := chromium.Start(ctx, filepath.Join(b.Dir, "paints"))
	if err != nil {
		return err
	}
	defer end()
	tab, leave := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	defer leave()
	if err := s.enterBrowser(tab); err != nil {
		return err
	}
	bare, whole := map[string][]float64{}, map[string][]float64{}
	for i := range paintings + 1 { // the first is for the browser
		for _, at := range sights {
			least, err := s.visit(tab, barePath)
			if err != nil {
				return fmt.Errorf("%s in Chromium: %w", barePath, err)
			}
			took, err := s.visit(tab, at.path)
			if err != nil {
				return fmt.Errorf("%s in Chromium: %w", at.path, err)
			}
			if i > 0 {
				bare[at.name], whole[at.name] = append(bare[at.name], least.Paint), append(whole[at.name], took.Paint)
				b.Add(at.paint(), took.Paint-least.Paint)
				b.Note(at.paint(),
					"%.0f ms, and %.0f ms of a line of text; in the last one the page was whole after %.0f ms, its "+
						"document was ready after %.0f ms",
					row.Median(whole[at.name]), row.Median(bare[at.name]), took.Whole, took.Ready)
			}
		}
	}
	for _, at := range sights {
		b.Add(at.ratio(), row.Median(whole[at.name])/row.Median(bare[at.name]))
		b.Note(at.ratio(), "%.0f ms and %.0f ms", row.Median(whole[at.name]), row.Median(bare[at.name]))
		if f := b.Figure(at.paint()); len(f.Samples) > 0 {
			b.Say("%s: median %.0f ms; %s", f.Name, row.Median(f.Samples), f.Note)
		}
	}
	return nil
}

// barePath is a line of text, the least that a browser can show.
const barePath = "/livez"

// painted is when a navigation was how far, in ms.
type painted struct{ Whole, Ready, Paint float64 }

const (
	paintTimes = `(() => {
	const n = performance.getEntriesByType("navigation")[0], p = performance.getEntriesByName("first-contentful-paint")[0];
	return {Whole: n?.responseEnd ?? 0, Ready: n?.domContentLoadedEventEnd ?? 0, Paint: p?.startTime ?? 0};
})()`
	paintOften = 20 * time.Millisecond
	paintLimit = 15 * time.Second
)

// visit opens a page with an empty cache and waits until something is painted.
func (s *stage) visit(tab context.Context, path string) (p painted, err error) {
	if _, err := chromedp.Call(tab, network.ClearBrowserCache, cdp.Empty{}); err != nil {
		return p, err
	}
	if err := chromedp.Do(tab, chromedp.Navigate(s.cloud.Controller+path)); err != nil {
		return p, err
	}
	for end := time.Now().Add(paintLimit); p.Paint == 0 || p.Ready == 0; {
		if p, err = chromedp.Run(tab, chromedp.Evaluate[painted](paintTimes)); err != nil {
			return p, err
		}
		if !rig.Pause(tab, paintOften) || time.Now().After(end) {
			return p, errors.New("nothing was painted")
		}
	}
	return p, nil
}

// enterBrowser sets the size and the login of a tab.
func (s *stage) enterBrowser(tab context.Context) error {
	if err := chromedp.Do(tab, chromedp.EmulateViewport(1440, 900)); err != nil {
		return err
	}
	u, err := url.Parse(s.cloud.Controller)
	if err != nil {
		return err
	}
	for _, c := range s.cookies {
		p := network.SetCookieParams{
			Name: c.Name, Value: c.Value, Domain: u.Hostname(), Path: "/",
			SameSite: network.CookieSameSiteStrict,
		}
		if _, err := chromedp.Call(tab, network.SetCookie, p); err != nil {
			return fmt.Errorf("log in at port %s: %w", strconv.Quote(u.Port()), err)
		}
	}
	return nil
}
