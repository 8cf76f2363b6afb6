package portal

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
)

// Intervals and limits of change notifications to pages.
const (
	tellEvery  = time.Second      // minimum interval between two notifications of one page
	tellAtLast = 30 * time.Second // maximum of that interval, however many pages there are
	beatEvery  = 15 * time.Second
	writeTime  = 10 * time.Second // after which a browser that reads nothing is disconnected
	maxPages   = 1000             // that are notified at a time
	mostOfOne  = 100              // of one login
	checkEvery = time.Minute      // interval at which the visitor's credentials are checked again
)

// freshShare is the share of one core that refreshing pages may use: where a refresh per page and
// second would use more, pages are notified less often.
const freshShare = 0.1

// hub notifies open pages of changes. It subscribes to changes of the cloud while a page is open.
type hub struct {
	changes func() (<-chan struct{}, func() Topics, func())

	mu    sync.Mutex // guards the fields below
	pages map[*listener]struct{}
	of    map[string]int // number of pages of each login
	stop  chan struct{}  // ends the subscription to the cloud; nil: there are no pages
	cost  time.Duration  // of a refresh, the mean of the last ones
}

// listener is an open page.
type listener struct {
	wants Topics
	wake  chan struct{} // buffer of one
	has   Topics        // that changed since its last notification; guarded by the hub
}

func newHub(changes func() (<-chan struct{}, func() Topics, func())) *hub {
	return &hub{changes: changes, pages: map[*listener]struct{}{}, of: map[string]int{}}
}

// enter adds a page of an owner, "" without authentication; it returns nil when there are too many.
func (h *hub) enter(owner string, wants Topics) *listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pages) >= maxPages || owner != "" && h.of[owner] >= mostOfOne {
		return nil
	}
	l := &listener{wants: wants, wake: make(chan struct{}, 1)}
	h.pages[l] = struct{}{}
	h.of[owner]++
	if h.stop == nil {
		h.stop = make(chan struct{})
		go h.listen(h.stop)
	}
	return l
}

// leave removes a page of an owner.
func (h *hub) leave(owner string, l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pages, l)
	if h.of[owner]--; h.of[owner] == 0 {
		delete(h.of, owner)
	}
	if len(h.pages) == 0 && h.stop != nil {
		close(h.stop)
		h.stop = nil
	}
}

// listen passes changes of the cloud on to the pages, until stop is closed.
func (h *hub) listen(stop chan struct{}) {
	changed, take, end := h.changes()
	defer end()
	for {
		select {
		case <-stop:
			return
		case <-changed:
			h.tell(take())
		}
	}
}

func (h *hub) tell(t Topics) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.pages {
		if l.wants&t == 0 {
			continue
		}
		l.has |= l.wants & t
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// refreshed records how long a refresh took.
func (h *hub) refreshed(took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cost == 0 {
		h.cost = took
	}
	h.cost += (took - h.cost) / 16
}

// pace returns how long a page is not notified after a notification.
func (h *hub) pace() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	each := time.Duration(float64(len(h.pages)) * float64(h.cost) / freshShare)
	return min(max(each, tellEvery), tellAtLast)
}

func (h *hub) take(l *listener) Topics {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := l.has
	l.has = 0
	return t
}

// follow notifies a page of changes for as long as it is open: only of their topics, not of their
// content, so that no user learns what they may not see.
func (p *portal) follow(w http.ResponseWriter, r *http.Request) {
	if p.o.Changes == nil {
		http.Error(w, "Live updates of pages are not available.", http.StatusNotFound)
		return
	}
	if !p.known(r) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	owner := p.owner(r)
	l := p.live.enter(owner, topicsOf(r.URL.Query().Get("topics")))
	if l == nil {
		http.Error(w, "Limit of open pages with live updates reached.", http.StatusServiceUnavailable)
		return
	}
	defer p.live.leave(owner, l)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would buffer it
	conn := http.NewResponseController(w)
	say := func(text string) bool {
		_ = conn.SetWriteDeadline(time.Now().Add(writeTime))
		_, err := fmt.Fprint(w, text)
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
			more = p.known(r)
		case <-wake:
			more = say("event: changed\ndata: " + p.live.take(l).String() + "\n\n")
			wake, rested = nil, time.After(p.live.pace())
		case <-rested:
			wake = l.wake
		}
	}
}

// owner identifies the login of a request by its credential; "" without authentication.
func (p *portal) owner(r *http.Request) string {
	if !p.o.Guarded {
		return ""
	}
	for _, name := range []string{auth.SecureLoginCookie, auth.LoginCookie} {
		if c, err := r.Cookie(name); err == nil {
			return c.Value
		}
	}
	return r.Header.Get("Authorization")
}

// known reports whether a browser's credentials are valid.
func (p *portal) known(r *http.Request) bool {
	v, err := p.visit(r)
	if err == nil {
		_, err = v.Status(v)
	}
	return err == nil
}
