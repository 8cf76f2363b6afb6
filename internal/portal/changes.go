package portal

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Intervals and limits of change notifications to pages.
const (
	tellEvery  = time.Second      // minimum interval between two notifications of one page
	tellAtLast = 30 * time.Second // maximum of that interval, however many pages there are
	beatEvery  = 15 * time.Second
	writeTime  = 10 * time.Second // after which a browser that reads nothing is disconnected
	maxPages   = 1000             // that are notified at a time
	maxOfLogin = 100              // of one login
	checkEvery = time.Minute      // interval at which the visitor's credentials are checked again
)

// refreshCPUShare is the share of one core that refreshing pages may use: where a refresh per page and
// second would use more, pages are notified less often.
const refreshCPUShare = 0.1

// hub notifies open pages of changes. It subscribes to changes of the cloud while a page is open.
type hub struct {
	subscribe func() (<-chan struct{}, func() Topics, func())

	mu           sync.Mutex // guards the fields below
	pages        map[*openPage]struct{}
	pagesByLogin map[string]int // number of pages of each login
	stop         chan struct{}  // ends the subscription to the cloud; nil: there are no pages
	refreshTime  time.Duration  // of a refresh, the mean of the last ones
}

// openPage is an open page.
type openPage struct {
	wantedTopics  Topics
	wake          chan struct{} // buffer of one
	changedTopics Topics        // that changed since its last notification; guarded by the hub
}

func newHub(changes func() (<-chan struct{}, func() Topics, func())) *hub {
	return &hub{subscribe: changes, pages: map[*openPage]struct{}{}, pagesByLogin: map[string]int{}}
}

// addPage adds a page of an owner, "" without authentication; it returns nil when there are too many.
func (h *hub) addPage(owner string, wants Topics) *openPage {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pages) >= maxPages || owner != "" && h.pagesByLogin[owner] >= maxOfLogin {
		return nil
	}
	l := &openPage{wantedTopics: wants, wake: make(chan struct{}, 1)}
	h.pages[l] = struct{}{}
	h.pagesByLogin[owner]++
	if h.stop == nil {
		h.stop = make(chan struct{})
		go h.forwardChanges(h.stop)
	}
	return l
}

// removePage removes a page of an owner.
func (h *hub) removePage(owner string, l *openPage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pages, l)
	if h.pagesByLogin[owner]--; h.pagesByLogin[owner] == 0 {
		delete(h.pagesByLogin, owner)
	}
	if len(h.pages) == 0 && h.stop != nil {
		close(h.stop)
		h.stop = nil
	}
}

// forwardChanges passes changes of the cloud on to the pages, until stop is closed.
func (h *hub) forwardChanges(stop chan struct{}) {
	changed, take, end := h.subscribe()
	defer end()
	for {
		select {
		case <-stop:
			return
		case <-changed:
			h.notifyPages(take())
		}
	}
}

func (h *hub) notifyPages(t Topics) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.pages {
		if l.wantedTopics&t == 0 {
			continue
		}
		l.changedTopics |= l.wantedTopics & t
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// recordRefresh records how long a refresh took.
func (h *hub) recordRefresh(took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refreshTime == 0 {
		h.refreshTime = took
	}
	h.refreshTime += (took - h.refreshTime) / 16
}

// notifyPause returns how long a page is not notified after a notification.
func (h *hub) notifyPause() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	each := time.Duration(float64(len(h.pages)) * float64(h.refreshTime) / refreshCPUShare)
	return min(max(each, tellEvery), tellAtLast)
}

func (h *hub) takeTopics(l *openPage) Topics {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := l.changedTopics
	l.changedTopics = 0
	return t
}

// serveChanges notifies a page of changes for as long as it is open: only of their topics, not of their
// content, so that no user learns what they may not see.
func (p *portal) serveChanges(w http.ResponseWriter, r *http.Request) {
	if p.opts.SubscribeChanges == nil {
		http.Error(w, "Live updates of pages are not available.", http.StatusNotFound)
		return
	}
	if !p.isAuthenticated(r) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	owner := p.loginOf(r)
	l := p.live.addPage(owner, parseTopics(r.URL.Query().Get("topics")))
	if l == nil {
		http.Error(w, "Limit of open pages with live updates reached.", http.StatusServiceUnavailable)
		return
	}
	defer p.live.removePage(owner, l)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would buffer it
	conn := http.NewResponseController(w)
	say := func(text string) bool {
		_ = conn.SetWriteDeadline(time.Now().Add(writeTime))
		_, err := fmt.Fprint(w, text) //nolint:gosec // an event stream of topics from a fixed set, no HTML
		return err == nil && conn.Flush() == nil
	}
	beat, check := time.NewTicker(beatEvery), time.NewTicker(checkEvery)
	defer beat.Stop()
	defer check.Stop()
	wake, rested := l.wake, (<-chan time.Time)(nil) // the minimum interval after a notification
	for more := say(": open\n\n"); more; {
		select {
		case <-r.Context().Done():
			return
		case <-beat.C:
			more = say(": beat\n\n")
		case <-check.C:
			more = p.isAuthenticated(r)
		case <-wake:
			more = say("event: changed\ndata: " + p.live.takeTopics(l).String() + "\n\n")
			wake, rested = nil, time.After(p.live.notifyPause())
		case <-rested:
			wake = l.wake
		}
	}
}

// loginOf identifies the login of a request by its credential; "" without authentication.
func (p *portal) loginOf(r *http.Request) string {
	if !p.opts.LoginRequired {
		return ""
	}
	for _, name := range p.opts.LoginCookies {
		if c, err := r.Cookie(name); err == nil {
			return c.Value
		}
	}
	return r.Header.Get("Authorization")
}

// isAuthenticated reports whether a browser's credentials are valid.
func (p *portal) isAuthenticated(r *http.Request) bool {
	v, err := p.newVisit(r)
	if err == nil {
		_, err = v.Status(v)
	}
	return err == nil
}
