package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/e2e/chromium"
	"github.com/buildyard/buildyard/test/e2e/firefox"
)

// look is how a page is looked at.
type look struct {
	browser string
	theme   string
	width   int64
	height  int64
}

func (l look) String() string { return fmt.Sprint(l.browser, " ", l.theme, " ", l.width) }

// file is what the name of a screenshot ends with.
func (l look) file() string {
	if l.browser == inChromium {
		return fmt.Sprint(l.theme, "-", l.width)
	}
	return fmt.Sprint(l.browser, "-", l.theme, "-", l.width)
}

const (
	inChromium = "chromium"
	inFirefox  = "firefox"
)

// looks are all of them.
var looks = []look{
	{inChromium, "light", 1440, 900},
	{inChromium, "dark", 1440, 900},
	{inChromium, "light", 390, 844},
	{inChromium, "dark", 390, 844},
	{inFirefox, "light", 1440, 900},
	{inFirefox, "dark", 1440, 900},
	{inFirefox, "light", 390, 844},
	{inFirefox, "dark", 390, 844},
}

// tab is a tab of a browser, with a fresh profile.
type tab interface {
	Navigate(ctx context.Context, address string) error
	Reload(ctx context.Context) error
	Back(ctx context.Context) error
	// Run runs statements.
	Run(ctx context.Context, script string) error
	// Evaluate returns the JSON of an expression, or of what the promise of it resolves to.
	Evaluate(ctx context.Context, expression string) ([]byte, error)
	// Click clicks the element of a CSS selector.
	Click(ctx context.Context, selector string) error
	// Type presses keys in the element of a CSS selector; without one where the focus is.
	Type(ctx context.Context, selector, keys string) error
	// PointAway moves the pointer into the corner of the page.
	PointAway(ctx context.Context) error
	Screenshot(ctx context.Context) ([]byte, error)
	// Media sets a media feature, in addition to the color scheme.
	Media(ctx context.Context, name, value string) error
	// Scripts lets the scripts of pages run, or not.
	Scripts(ctx context.Context, run bool) error
	// Cookies returns the number of cookies of an address, and whether each is HttpOnly and SameSite=Strict.
	Cookies(ctx context.Context, address string) (n int, strict bool, err error)
}

// evaluate decodes the JSON of an expression.
func evaluate[T any](p *page, expression string) (v T, err error) {
	text, err := p.tab.Evaluate(p, expression)
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(text, &v)
}

const (
	flowTime = 90 * time.Second // for a flow in one look
	waitTime = 15 * time.Second // for something to be on a page
	// checkTries is how often the rules of accessibility are begun on a page that is left during that.
	checkTries = 5
)

// page is a tab of a fresh browser profile, in one look, while a flow uses it.
type page struct {
	context.Context
	*stage
	tab   tab
	as    look
	flow  string
	dir   string // for screenshots
	shots []string
	own   *specialCloud // that the flow started for this look; nil: none

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
	end, err := p.openTab(limited)
	if err != nil {
		return p, err
	}
	defer end()
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

// openTab opens the tab, and listens to what the page must not do.
func (p *page) openTab(ctx context.Context) (end func(), err error) {
	if p.as.browser == inChromium {
		p.Context, p.tab, end, err = chromium.Open(ctx, p.as.theme, p.as.width, p.as.height,
			chromium.Events{Wrote: p.wrote, Requested: p.requested})
		return end, err
	}
	p.Context = ctx
	p.tab, end, err = p.firefox[p.as.theme].Open(ctx, p.as.width, p.as.height,
		firefox.Events{Wrote: p.wrote, Requested: p.requested})
	return end, err
}

// requested keeps an address that is not the cloud's.
func (p *page) requested(address string) {
	if p.isOutside(address) {
		p.note(&p.outside, address)
	}
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
	own := []string{p.open.Controller, p.guarded.Controller, p.lab.Controller}
	for _, c := range []*specialCloud{p.outage, p.large, p.own} {
		if c != nil {
			own = append(own, c.Controller)
		}
	}
	return !slices.Contains(own, "http://"+u.Host)
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
	if p.as.browser == inFirefox && strings.Contains(text, "NetworkError when") { // a navigation ended the request
		p.mu.Unlock()
		return
	}
	if p.absent && slices.ContainsFunc([]string{"net::ERR_", "Failed to fetch"},
		func(part string) bool { return strings.Contains(text, part) }) {
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
// is left during that, they run again over the next one.
func (p *page) checkRules() (found []string, err error) {
	text, err := axeFiles.ReadFile("axe/axe.min.js")
	if err != nil {
		return nil, err
	}
	for range checkTries {
		if err = p.ready("main"); err != nil { // the page as a whole, not the empty one before it
			return nil, err
		}
		if err = p.tab.Run(p, string(text)); err != nil {
			err = fmt.Errorf("loading the rules of accessibility: %w", err)
		} else if found, err = evaluate[[]string](p, axeRun); err != nil {
			err = fmt.Errorf("running the rules of accessibility: %w", err)
		}
		if err == nil || !strings.Contains(err.Error(), leftPage) {
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
	wide, err := evaluate[int](p, `document.documentElement.scrollWidth - document.documentElement.clientWidth`)
	if err != nil {
		return err
	}
	if wide > 0 {
		by, err := p.text(`(() => {
			const out = [], range = document.createRange(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_ALL);
			for (let n = walk.nextNode(); n; n = walk.nextNode()) {
				range.selectNode(n);
				if (range.getBoundingClientRect().right > document.documentElement.clientWidth + scrollX) out.push((n.outerHTML ?? n.data).slice(0, 90));
			}
			return out.slice(-3).join(" ... ");
		})()`)
		if err != nil {
			return err
		}
		p.note(&p.axe, fmt.Sprintf("%s: the page is %d pixels wider than the window: %s", name, wide, by))
	}
	picture, err := p.tab.Screenshot(p)
	if err != nil {
		return err
	}
	file := filepath.Join(p.dir, fmt.Sprintf("%s-%s-%s.png", p.flow, name, p.as.file()))
	p.shots = append(p.shots, strings.TrimPrefix(file, p.dir+string(filepath.Separator)))
	return os.WriteFile(file, picture, 0o644)
}
