package fault

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/buildyard/buildyard/test/fault/crash"
	"github.com/buildyard/buildyard/test/rig"
)

// The faults of a faultyProxy.
const (
	registryAway     = "registry away"
	responseStatus   = "response 503"
	responseBit      = "flipped bit"
	responseCutShort = "response cut"
)

// responseFaults are the faults of responses with a part of a layer.
var responseFaults = []string{responseStatus, responseBit, responseCutShort}

// maxFaultOffset is below which bytes of a response are damaged.
const maxFaultOffset = 64 << 10

// faultyProxy is between a client and a registry, and injects faults.
type faultyProxy struct {
	URL    string
	server *http.Server

	mu     sync.Mutex // guards the fields below
	rng    *rand.Rand
	away   bool          // no request is answered
	delay  time.Duration // of each response with a part of a layer
	left   int           // responses that will be damaged
	held   chan struct{} // closed when requests for isHeld are answered; nil: no request waits
	isHeld func(*http.Request) bool
	counts map[string]int // of the faults
}

// newFaultyProxy listens on a free loopback port. Nothing else uses rng.
func newFaultyProxy(ctx context.Context, registry string, rng *rand.Rand) (p *faultyProxy, err error) {
	return newFaultyProxyAt(ctx, "127.0.0.1:0", registry, rng)
}

// newFaultyProxyAt is newFaultyProxy at an address, "host:port".
func newFaultyProxyAt(ctx context.Context, address, registry string, rng *rand.Rand) (p *faultyProxy, err error) {
	target, err := url.Parse(registry)
	if err != nil {
		return nil, err
	}
	p = &faultyProxy{rng: rng, counts: map[string]int{}}
	forward := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: p.inject,
		FlushInterval:  -1, // a client repeats a request of whose response it has nothing
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	p.URL, p.server, err = rig.ServeAt(ctx, address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.awaitRelease(r)
		if p.isAway() {
			panic(http.ErrAbortHandler) // closes the connection
		}
		forward.ServeHTTP(w, r)
	}))
	return p, err
}

func (p *faultyProxy) close() error { return p.server.Close() }

// begin sets the delay of responses with a part of a layer, and how many of them are damaged.
func (p *faultyProxy) begin(delay time.Duration, damaged int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away, p.delay, p.left = false, delay, damaged
}

// hold makes the requests that isHeld reports wait until release.
func (p *faultyProxy) hold(isHeld func(*http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held, p.isHeld = make(chan struct{}), isHeld
}

// release answers the requests that wait.
func (p *faultyProxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

func (p *faultyProxy) awaitRelease(r *http.Request) {
	p.mu.Lock()
	held, isHeld := p.held, p.isHeld
	p.mu.Unlock()
	if held == nil || !isHeld(r) {
		return
	}
	select {
	case <-held:
	case <-r.Context().Done():
	}
}

// setAway begins or ends an outage of the registry.
func (p *faultyProxy) setAway(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away = away; away {
		p.counts[registryAway]++
	}
}

func (p *faultyProxy) isAway() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away
}

// count adds a fault that the caller injects.
func (p *faultyProxy) count(fault string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[fault]++
}

// faults returns how many faults there were, by their names.
func (p *faultyProxy) faults() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// draw returns the fault of the next response with a part of a layer, "" for none, its delay, and a place in it.
func (p *faultyProxy) draw() (fault string, delay time.Duration, at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left > 0 && p.rng.IntN(3) == 0 {
		p.left--
		fault = responseFaults[p.rng.IntN(len(responseFaults))]
		p.counts[fault]++
	}
	return fault, p.delay, 1 + p.rng.Int64N(maxFaultOffset)
}

// inject delays and damages a response, if it has a part of a layer.
func (p *faultyProxy) inject(r *http.Response) error {
	if r.Request.Header.Get("Range") == "" {
		return nil
	}
	fault, delay, at := p.draw()
	if !rig.Pause(r.Request.Context(), delay) {
		return context.Cause(r.Request.Context())
	}
	switch fault {
	case responseStatus:
		_ = r.Body.Close()
		r.StatusCode, r.Body, r.Header = http.StatusServiceUnavailable, http.NoBody, http.Header{}
	case responseBit:
		r.Body = crash.FlipBit(r.Body, min(at, max(r.ContentLength-1, 0)))
	case responseCutShort:
		r.Body = &cutBody{r.Body, min(at, max(r.ContentLength-1, 1))}
	}
	return nil
}

// cutBody is a body that breaks off.
type cutBody struct {
	io.ReadCloser
	left int64 // bytes
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
