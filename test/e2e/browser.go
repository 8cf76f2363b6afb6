package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/buildyard/buildyard/client"
)

// look is how a page is looked at.
type look struct {
	theme  string
	width  int64
	height int64
}

func (l look) String() string { return fmt.Sprint(l.theme, " ", l.width) }

// looks are all of them.
var looks = []look{{"light", 1440, 900}, {"dark", 1440, 900}, {"light", 390, 844}, {"dark", 390, 844}}

const (
	flowTime = 90 * time.Second // for a flow in one look
	waitTime = 15 * time.Second // for something to be on a page
)

// page is a tab of a fresh browser profile, in one look, while a flow uses it.
type page struct {
	context.Context
	*stage
	as    look
	flow  string
	dir   string // for screenshots
	shots []string

	mu                    sync.Mutex // guards the fields below
	axe, console, outside []string
	refusals              []int // answers that a flow provokes, which the browser logs to the console
	absent                bool  // the flow ends the controller, which the browser logs there too
	visits                bool  // the flow forwards to the neighbors too
	scriptless            bool  // the browser runs no script of pages
}

// look runs a flow in a look.
func (s *stage) look(ctx context.Context, f flow, as look, shots string) (p *page, err error) {
	p = &page{stage: s, as: as, flow: f.name, dir: shots}
	limited, stop := context.WithTimeout(s.browser, flowTime)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	tab, end := chromedp.NewContext(limited, chromedp.WithNewBrowserContext())
	defer end()
	p.Context = tab
	if err := p.begin(); err != nil {
		return p, err
	}
	if err := f.do(p); err != nil {
		err = errors.Join(err, p.shot("failed"))
		return p, errors.Join(err, p.sweep())
	}
	return p, p.sweep()
}

// sweep ends the instances that the flow started in this look: others need the capacity.
func (p *page) sweep() error {
	list, err := p.api.Instances(p, client.ListOptions{Filter: "name:" + p.name() + "*"})
	for _, item := range list {
		if end := p.api.Terminate(p, item.InstanceID); client.CodeOf(end) != client.ErrNotFound {
			err = errors.Join(err, end)
		}
	}
	return err
}

// begin opens the tab, sets its look and listens to what the page must not do.
func (p *page) begin() error {
	scheme := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: p.as.theme}}
	err := chromedp.Do(p, chromedp.EmulateViewport(p.as.width, p.as.height))
	if err == nil {
		_, err = chromedp.Call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: scheme})
	}
	if err == nil { // tabs are used side by side, and each is as if it were in front
		_, err = chromedp.Call(p, emulation.SetFocusEmulationEnabled,
			emulation.SetFocusEmulationEnabledParams{Enabled: true})
	}
	if err != nil {
		return err
	}
	messages, requests := chromedp.Console(p), chromedp.Events(p, network.RequestWillBeSent)
	if _, err := chromedp.Call(p, network.Enable, network.EnableParams{}); err != nil {
		return err
	}
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if slices.Contains([]chromedp.ConsoleType{
				chromedp.ConsoleError, chromedp.ConsoleWarning, chromedp.ConsoleException,
			}, m.Type) {
				p.wrote(m.String())
			}
		}
	}()
	go func() {
		for r, err := range requests {
			if err != nil {
				return
			}
			if p.isOutside(r.Request.URL) {
				p.note(&p.outside, r.Request.URL)
			}
		}
	}()
	return nil
}

// isOutside reports whether an address is not the cloud's.
func (p *page) isOutside(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return true
	}
	if slices.Contains([]string{"data", "blob", "about"}, u.Scheme) {
		return false
	}
	p.mu.Lock()
	visits := p.visits
	p.mu.Unlock()
	if visits && p.services.has(u) {
		return false
	}
	return !slices.Contains([]string{p.open.Controller, p.guarded.Controller, p.lab.Controller}, "http://"+u.Host)
}

func (p *page) note(list *[]string, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
}

// wrote keeps what the browser wrote into the console.
func (p *page) wrote(text string) {
	p.mu.Lock()
	if p.absent && (strings.Contains(text, "net::ERR_") || strings.Contains(text, "Failed to fetch")) {
		p.mu.Unlock()
		return
	}
	i := slices.IndexFunc(p.refusals,
		func(code int) bool { return strings.Contains(text, fmt.Sprintf("responded with a status of %d", code)) })
	if i >= 0 {
		p.refusals = slices.Delete(p.refusals, i, i+1)
	}
	p.mu.Unlock()
	if i < 0 {
		p.note(&p.console, text)
	}
}

// clean reports whether nothing was noted.
func (p *page) clean() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.axe)+len(p.console)+len(p.outside) == 0
}

// checkRules runs the rules of accessibility over the page and returns what they find. If the page
// is left during that, they run once more over the next one.
func (p *page) checkRules() (found []string, err error) {
	text, err := axeFiles.ReadFile("axe/axe.min.js")
	if err != nil {
		return nil, err
	}
	for try := range 2 {
		if err = p.ready("body"); err != nil { // the page as a whole, not its beginning
			return nil, err
		}
		if err = chromedp.Do(p, chromedp.Evaluate[chromedp.Void](string(text))); err != nil {
			err = fmt.Errorf("loading the rules of accessibility: %w", err)
		} else if found, err = chromedp.Run(p,
			chromedp.Evaluate[[]string](axeRun, chromedp.EvalAwaitPromise)); err != nil {
			err = fmt.Errorf("running the rules of accessibility: %w", err)
		}
		if err == nil || try > 0 || !strings.Contains(err.Error(), leftPage) {
			break
		}
	}
	return found, err
}

// leftPage is the browser's error for a script whose page is left while it runs.
const leftPage = "Inspected target navigated or closed"

// shot takes a picture of the page, and runs the rules of accessibility over it.
func (p *page) shot(name string) (err error) {
	if p.scriptless { // the rules are a script too
		if err := p.scripts(true); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.scripts(false)) }()
	}
	found, err := p.checkRules()
	if err != nil {
		return err
	}
	for _, line := range found {
		p.note(&p.axe, name+": "+line)
	}
	wide, err := chromedp.Run(p,
		chromedp.Evaluate[int](`document.documentElement.scrollWidth - document.documentElement.clientWidth`))
	if err != nil {
		return err
	}
	if wide > 0 {
		p.note(&p.axe, fmt.Sprintf("%s: the page is %d pixels wider than the window", name, wide))
	}
	picture, err := chromedp.Run(p, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	file := filepath.Join(p.dir, fmt.Sprintf("%s-%s-%s-%d.png", p.flow, name, p.as.theme, p.as.width))
	p.shots = append(p.shots, strings.TrimPrefix(file, p.dir+string(filepath.Separator)))
	return os.WriteFile(file, picture, 0o644)
}
