package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/memory"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/buildyard/buildyard/test/e2e/chromium"
	"github.com/buildyard/buildyard/test/rig"
)

// held is what a tab holds after its garbage was collected.
type held struct{ heap, nodes, listeners float64 }

// tab measures whether a tab that stays open grows.
func (b *bench) tab(ctx context.Context, s *stage) error {
	browser, end, err := chromium.Start(ctx, filepath.Join(b.Dir, "tab"))
	if err != nil {
		return err
	}
	defer end()
	tab, leave := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	defer leave()
	if err := s.enterBrowser(tab); err != nil {
		return err
	}
	if err := chromedp.Do(tab, chromedp.Navigate(s.cloud.Controller+"/instances"),
		chromedp.Evaluate[chromedp.Void](countSwaps)); err != nil {
		return err
	}
	var all []held
	began := time.Now()
	for until := began.Add(time.Duration(b.seconds) * time.Second); time.Now().Before(until); {
		if !rig.Pause(ctx, min(glance, time.Until(until))) {
			return context.Cause(ctx)
		}
		h, err := leastHeld(ctx, tab)
		if err != nil {
			return fmt.Errorf("looking at the tab after %s: %w", time.Since(began).Round(time.Second), err)
		}
		all = append(all, h)
		if len(all)%6 == 0 {
			b.Say("the tab: %.2f MB, %.0f DOM nodes, %.0f listeners", h.heap/1e6, h.nodes, h.listeners)
		}
	}
	swaps, err := chromedp.Run(tab, chromedp.Evaluate[float64](`globalThis.swaps`))
	if err != nil {
		return err
	}
	return b.checkTab(all, swaps/time.Since(began).Seconds())
}

// countSwaps counts how often the page was refreshed.
const countSwaps = `{ globalThis.swaps = 0; document.addEventListener("htmx:after:swap", () => { globalThis.swaps++; }); }`

// leastHeld is the least of three counts: during a refresh the old rows are counted too.
func leastHeld(ctx, tab context.Context) (least held, err error) {
	for i := range 3 {
		h, err := holds(tab)
		if err != nil {
			return least, err
		}
		if i == 0 {
			least = h
		}
		least = held{min(least.heap, h.heap), min(least.nodes, h.nodes), min(least.listeners, h.listeners)}
		if !rig.Pause(ctx, recount) {
			return least, context.Cause(ctx)
		}
	}
	return least, nil
}

// holds counts what a tab holds.
func holds(tab context.Context) (h held, err error) {
	if _, err := chromedp.Call(tab, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
		return h, err
	}
	heap, err := chromedp.Call(tab, runtime.GetHeapUsage, cdp.Empty{})
	if err != nil {
		return h, err
	}
	dom, err := chromedp.Call(tab, memory.GetDOMCounters, cdp.Empty{})
	return held{heap.UsedSize, float64(dom.Nodes), float64(dom.JsEventListeners)}, err
}

// checkTab makes the rows of what was counted.
func (b *bench) checkTab(all []held, swaps float64) error {
	third := len(all) / 3
	for _, r := range []struct {
		name string
		of   func(held) float64
	}{
		{rowHeap, func(h held) float64 { return h.heap / 1e6 }},
		{rowNodes, func(h held) float64 { return h.nodes }},
		{rowListeners, func(h held) float64 { return h.listeners }},
	} {
		if !b.Wants(r.name) || third == 0 {
			continue
		}
		first, second, last := mean(all[:third], r.of), mean(all[third:len(all)-third], r.of),
			mean(all[len(all)-third:], r.of)
		b.Add(r.name, 100*math.Abs(last/second-1))
		b.Note(r.name, "thirds %.2f, %.2f, %.2f; %d looks, %.2f refreshes a second", first, second, last, len(all),
			swaps)
		b.Say("%s: %s", r.name, b.Figure(r.name).Note)
	}
	switch {
	case b.seconds < wholeWatch:
		return fmt.Errorf("the tab was watched for %d s instead of %d: heap %s", b.seconds, wholeWatch,
			b.Figure(rowHeap).Note)
	case swaps < leastFresh:
		return fmt.Errorf("the tab was refreshed %.2f times a second", swaps)
	}
	return nil
}

func mean(all []held, of func(held) float64) (sum float64) {
	for _, h := range all {
		sum += of(h)
	}
	return sum / float64(len(all))
}
