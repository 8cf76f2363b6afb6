package fault

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// The faults of a badLine.
const (
	lineAway        = "registry away"
	lineUnavailable = "answer 503"
	lineFlipped     = "flipped bit"
	lineCut         = "answer cut"
)

// partFaults are the faults of answers with a part of a layer.
var partFaults = []string{lineUnavailable, lineFlipped, lineCut}

// badLine forwards requests to a registry, and disturbs answers.
type badLine struct {
	URL    string
	proxy  *httputil.ReverseProxy
	server *http.Server

	mu     sync.Mutex // guards the fields below
	rng    *rand.Rand
	away   bool           // no request is answered
	delay  time.Duration  // of each answer with a part of a layer
	left   int            // answers that will be disturbed
	counts map[string]int // of the faults
}

// newBadLine listens on a loopback address.
func newBadLine(ctx context.Context, registry string, rng *rand.Rand) (*badLine, error) {
	target, err := url.Parse(registry)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &badLine{
		URL: "http://" + listener.Addr().String(), rng: rng, counts: map[string]int{},
		proxy: &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
			FlushInterval: -1,
		},
	}
	l.server = &http.Server{Handler: l, ReadHeaderTimeout: rig.ReadyTime}
	go func() { _ = l.server.Serve(listener) }()
	return l, nil
}

func (l *badLine) close() error { return l.server.Close() }

// begin sets what the next run meets: the delay of answers, and how many are disturbed.
func (l *badLine) begin(delay time.Duration, disturbed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away, l.delay, l.left = false, delay, disturbed
}

// setAway begins or ends an outage of the registry.
func (l *badLine) setAway(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away = away; away {
		l.counts[lineAway]++
	}
}

// count adds a fault of something else.
func (l *badLine) count(fault string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[fault]++
}

// draw returns the fault of the next answer, "" for none, its delay, and a random number for it.
func (l *badLine) draw(isPart bool) (fault string, delay time.Duration, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.away:
		return lineAway, 0, 0
	case !isPart:
		return "", 0, 0
	case l.left > 0 && l.rng.IntN(3) == 0:
		l.left--
		fault = partFaults[l.rng.IntN(len(partFaults))]
		l.counts[fault]++
	}
	return fault, l.delay, l.rng.IntN(64 << 10)
}

// ServeHTTP implements http.Handler.
func (l *badLine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault, delay, n := l.draw(r.Header.Get("Range") != "")
	if !rig.Pause(r.Context(), delay) {
		return
	}
	switch fault {
	case lineAway:
		panic(http.ErrAbortHandler) // the connection is closed
	case lineUnavailable:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case lineFlipped, lineCut:
		w = &badAnswer{ResponseWriter: w, at: n, cut: fault == lineCut}
	}
	l.proxy.ServeHTTP(w, r)
}

// badAnswer flips a bit of the first byte from a place on, or ends there.
type badAnswer struct {
	http.ResponseWriter
	at   int // bytes before the fault; negative: it is done
	cut  bool
	work []byte
}

func (a *badAnswer) Write(p []byte) (int, error) {
	at := a.at
	a.at -= len(p)
	if at < 0 || at >= len(p) {
		return a.ResponseWriter.Write(p)
	}
	if a.cut {
		_, _ = a.ResponseWriter.Write(p[:at])
		_ = http.NewResponseController(a.ResponseWriter).Flush() // a client repeats a request without an answer
		panic(http.ErrAbortHandler)
	}
	a.work = append(a.work[:0], p...)
	a.work[at] ^= 1 << (at % 8)
	return a.ResponseWriter.Write(a.work)
}

// Unwrap is for http.ResponseController.
func (a *badAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
