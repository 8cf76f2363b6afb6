package main

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/e2e/chromium"
	"github.com/buildyard/buildyard/test/rig"
)

// counted counts the bytes of the responses that a tab receives, as they are on the wire.
func counted(tab context.Context) (*atomic.Int64, error) {
	n := &atomic.Int64{}
	events := chromedp.Events(tab, network.DataReceived)
	if _, err := chromedp.Call(tab, network.Enable, network.EnableParams{}); err != nil {
		return nil, err
	}
	go func() {
		for e, err := range events {
			if err != nil {
				return
			}
			n.Add(int64(e.EncodedDataLength))
		}
	}()
	return n, nil
}

// wire measures what a first visit transfers, and then a tab that stays open.
func (b *bench) wire(ctx context.Context, s *stage) error {
	browser, end, err := chromium.Start(ctx, filepath.Join(b.Dir, "wire"))
	if err != nil {
		return err
	}
	defer end()
	tab, leave := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	defer leave()
	if err := s.enterBrowser(tab); err != nil {
		return err
	}
	bytes, err := counted(tab)
	if err != nil {
		return err
	}
	for _, at := range sights {
		if _, err := chromedp.Call(tab, network.ClearBrowserCache, cdp.Empty{}); err != nil {
			return err
		}
		before := bytes.Load()
		if err := chromedp.Do(tab, chromedp.Navigate(s.cloud.Controller+at.path)); err != nil {
			return err
		}
		if !rig.Pause(ctx, visitTime) { // fonts and what scripts load
			return context.Cause(ctx)
		}
		b.Add(rowVisit, float64(bytes.Load()-before)/1000)
		b.Note(rowVisit, "%s: %.0f kB", at.path, float64(bytes.Load()-before)/1000)
	}
	b.Say("%s: at most %.0f kB", rowVisit, row.Quantile(b.Figure(rowVisit).Samples, 1))
	return b.openTab(tab, s, bytes)
}

// openTab measures the tab that stays open.
func (b *bench) openTab(tab context.Context, s *stage, bytes *atomic.Int64) error {
	if err := chromedp.Do(tab, chromedp.Navigate(s.cloud.Controller+"/instances"),
		chromedp.Evaluate[chromedp.Void](countSwaps)); err != nil {
		return err
	}
	over := min(window, time.Duration(b.seconds)*time.Second/10)
	before, began := bytes.Load(), time.Now()
	if !rig.Pause(tab, over) {
		return context.Cause(tab)
	}
	took := time.Since(began).Seconds()
	swaps, err := chromedp.Run(tab, chromedp.Evaluate[float64](`globalThis.swaps`))
	if err != nil {
		return err
	}
	b.Add(rowWire, float64(bytes.Load()-before)/1000/took)
	b.Note(rowWire, "%.2f refreshes a second", swaps/took)
	b.Say("%s: %.1f kB/s; %s", rowWire, b.Figure(rowWire).Samples[0], b.Figure(rowWire).Note)
	switch {
	case over < window:
		b.Spoil(fmt.Errorf("%s instead of %s", over, window), rowWire)
	case swaps/took < leastFresh:
		b.Spoil(fmt.Errorf("the tab was refreshed %.2f times a second", swaps/took), rowWire)
	}
	return nil
}

// search measures the search over as many instances again, which wait.
func (b *bench) search(ctx context.Context, s *stage) error {
	group, err := s.api.CreateGroup(ctx, client.GroupRequest{Name: "none"})
	if err != nil {
		return err
	}
	for begun := 0; begun < searched-instances; begun += batch {
		if _, err := s.api.Start(ctx, client.StartRequest{
			TemplateID: s.template, Tag: "v1", Count: batch, GroupID: group.ID, Name: "waits",
		}); err != nil {
			return err
		}
	}
	s.mu.Lock()
	id := s.ids[len(s.ids)/2]
	s.mu.Unlock()
	v := s.visitor()
	defer v.http.CloseIdleConnections()
	// An ID, a part of many names, a part of no name, a node, and the external ID of half of the instances.
	texts := []string{id, "wait", "no-such-name", "node-0500", "ci.example"}
	for i := range looks + 1 { // the first is for the connection
		_, took, err := v.get(ctx, "/api/v1/search?q="+url.QueryEscape(texts[i%len(texts)]))
		if err != nil {
			return err
		}
		if i > 0 {
			b.Add(rowSearch, ms(took))
		}
		if !rig.Pause(ctx, pace) {
			return context.Cause(ctx)
		}
	}
	stats, err := s.api.Stats(ctx)
	if err != nil {
		return err
	}
	n := stats.Instances["Started"] + stats.Instances["Scheduling"]
	b.Note(rowSearch, "of %d instances", n)
	b.Say("%s: p95 %.1f ms", rowSearch, row.Quantile(b.Figure(rowSearch).Samples, 0.95))
	if float64(n) < leastShare*searched {
		return fmt.Errorf("there were %d instances", n)
	}
	return nil
}
