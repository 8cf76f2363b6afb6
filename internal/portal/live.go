package portal

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
)

// The rhythm of what tells pages of changes.
const (
	tellEvery  = time.Second      // at most so often is one page told
	tellAtLast = 30 * time.Second // so often it is told however many there are
	beatEvery  = 15 * time.Second
	writeTime  = 10 * time.Second // a browser that takes nothing for so long is let go
	maxPages   = 1000             // that are told at a time
	mostOfOne  = 100              // that are told by one log-in
	checkEvery = time.Minute      // whether the visitor may still be told
)

// freshShare is what part of one core keeping pages fresh may take: where a page a second would
// take more, each is told less often.
const freshShare = 0.1

// hub tells open pages of what changes. It listens to the cloud while somebody listens to it.
type hub struct {
	changes func() (<-chan struct{}, func() Topics, func())

	mu    sync.Mutex // guards the fields below
	pages map[*listener]struct{}
	of    map[string]int // how many there are of each log-in
	stop  chan struct{}  // ends the listening to the cloud; nil: nobody listens
	cost  time.Duration  // of a refresh, the mean of the last ones
}

// listener is an open page.
type listener struct {
	wants Topics
	wake  chan struct{} // has room for one
	has   Topics        // that changed since it was told; guarded by the hub
}

func newHub(changes func() (<-chan struct{}, func() Topics, func())) *hub {
	return &hub{changes: changes, pages: map[*listener]struct{}{}, of: map[string]int{}}
}

// enter adds a page of an owner, "" where nobody has to log in; nil where there are too many.
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

// leave takes a page away from those of its owner.
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

// listen passes on what the cloud tells, until stop is closed.
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

// refreshed notes how long a refresh took.
func (h *hub) refreshed(took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cost == 0 {
		h.cost = took
	}
	h.cost += (took - h.cost) / 16
}

// pace returns how long a page is not told anything after it was told.
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

// follow tells a page of changes for as long as it is open: not what has changed, but that it
// has, so that nobody learns here what they may not see.
func (p *portal) follow(w http.ResponseWriter, r *http.Request) {
	if p.o.Changes == nil {
		http.Error(w, "Pages are not told of changes.", http.StatusNotFound)
		return
	}
	if !p.known(r) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	owner := p.owner(r)
	l := p.live.enter(owner, topicsOf(r.URL.Query().Get("topics")))
	if l == nil {
		http.Error(w, "Too many pages are open.", http.StatusServiceUnavailable)
		return
	}
	defer p.live.leave(owner, l)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold it back
	conn := http.NewResponseController(w)
	say := func(text string) bool {
		_ = conn.SetWriteDeadline(time.Now().Add(writeTime))
		_, err := fmt.Fprint(w, text)
		return err == nil && conn.Flush() == nil
	}
	beat, check := time.NewTicker(beatEvery), time.NewTicker(checkEvery)
	defer beat.Stop()
	defer check.Stop()
	wake, rested := l.wake, (<-chan time.Time)(nil) // after it was told, a page is left alone for a while
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

// owner names the log-in of a request, by what proves it; "" where nobody has to log in.
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

// known reports whether a browser's credentials count.
func (p *portal) known(r *http.Request) bool {
	v, err := p.visit(r)
	if err == nil {
		_, err = v.Status(v)
	}
	return err == nil
}
