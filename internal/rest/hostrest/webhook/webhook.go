// Package webhook posts the events of the host scanner to an HTTP endpoint of the operator's choice.
//
// It is not a reliable report: events that cannot be delivered for long are dropped, and the next delivered
// event contains their number. It never makes the scanner wait.
//
// Invariant: events arrive in their order, one at a time, each with an ID that it keeps when it is sent again.
package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/rest/hostrest/encode"
	"github.com/buildyard/buildyard/internal/retry"
	"github.com/buildyard/buildyard/internal/scan/host"
)

// Limits of a hook.
const (
	maxQueue         = 32   // queued events
	maxQueuedItems   = 4000 // packages and findings in them
	maxAttempts      = 6    // of one event
	postTimeout      = 10 * time.Second
	minRetryDelay    = time.Second // between tries
	maxRetryDelay    = 16 * time.Second
	shutdownTimeout  = 2 * time.Second
	maxResponseBytes = 64 << 10 // of a response, so that its connection can be used again
)

// Hook posts events. It is created with New.
type Hook struct {
	url      string
	hostName string
	client   *http.Client
	log      *slog.Logger
	results  metric.Results
	dropped  metric.Counter

	mu            sync.Mutex // guards the fields below
	queue         []host.Event
	droppedEvents int           // events dropped since the last delivered one
	wake          chan struct{} // has one element when an event was queued
}

// Options configures a hook.
type Options struct {
	URL  string // may have a user and a password
	Host string // name of this machine
	Log  *slog.Logger
}

// New makes a hook.
func New(o Options) (*Hook, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("must be a URL such as https://host/path") // without the address: may be secret
	}
	return &Hook{
		url: u.String(), hostName: o.Host, log: o.Log, wake: make(chan struct{}, 1),
		client: &http.Client{
			Timeout: postTimeout,
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, MaxConnsPerHost: 1,
				IdleConnTimeout: 30 * time.Second,
			},
			// a redirect would lose the body
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Enqueue queues an event. If the queue is full, the oldest events are dropped.
func (h *Hook) Enqueue(e host.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queue = append(h.queue, e)
	items := 0
	for i, old := range slices.Backward(h.queue) {
		items += len(old.New) + len(old.Findings) + len(old.Removed)
		if n := len(h.queue) - i; n > 1 && (items > maxQueuedItems || n > maxQueue) {
			h.dropLocked(i + 1)
			h.queue = append(h.queue[:0:0], h.queue[i+1:]...)
			break
		}
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *Hook) dropLocked(n int) {
	h.droppedEvents += n
	h.dropped.Add(int64(n))
}

// Run posts events until ctx ends, and then the queued ones for a short time.
func (h *Hook) Run(ctx context.Context) {
	defer h.client.CloseIdleConnections()
	end, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(shutdownTimeout, cancel) })()
	for end.Err() == nil {
		e, ok := h.dequeue()
		if !ok {
			select {
			case <-h.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		h.deliver(ctx, end, e)
	}
}

// dequeue removes the oldest event from the queue and returns it.
func (h *Hook) dequeue() (host.Event, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.queue) == 0 {
		h.queue = nil // so that the array does not keep a large event in memory
		return host.Event{}, false
	}
	e := h.queue[0]
	h.queue = append(h.queue[:0:0], h.queue[1:]...)
	return e, true
}

// deliver posts an event, with retries until ctx ends. An undelivered event is dropped. Posts end with end.
func (h *Hook) deliver(ctx, end context.Context, e host.Event) {
	raw, missed, err := h.encode(e)
	gap := retry.New(minRetryDelay, maxRetryDelay)
	for try := 1; err == nil; try++ {
		err = h.post(end, raw)
		h.results.Observe(err)
		if err == nil {
			h.mu.Lock()
			h.droppedEvents -= missed
			h.mu.Unlock()
			return
		}
		if unwanted := (*statusError)(nil); errors.As(err, &unwanted) && unwanted.permanent || try == maxAttempts ||
			ctx.Err() != nil {
			break
		}
		h.log.DebugContext(ctx, "webhook delivery failed; trying again", "try", try, "error", err)
		err = nil
		_ = gap.Sleep(ctx) // the next try is then the last one
	}
	h.log.WarnContext(ctx, "webhook delivery failed; event dropped", "error", err)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropLocked(1)
}

// encode returns the body of an event, and the number of missed events in it.
func (h *Hook) encode(e host.Event) ([]byte, int, error) {
	out := encode.Event(e)
	h.mu.Lock()
	out.Missed = h.droppedEvents
	h.mu.Unlock()
	out.ID, out.Host = uuid.NewString(), h.hostName
	raw, err := json.Marshal(out)
	return raw, out.Missed, err
}

// statusError is a response with a status other than success.
type statusError struct {
	status    string
	permanent bool // retries do not help
}

func (r *statusError) Error() string { return "it answers " + r.status }

// post sends an event once.
func (h *Hook) post(ctx context.Context, raw []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "buildyard-hostscan")
	resp, err := h.client.Do(req)
	if err != nil {
		return withoutAddress(err)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxResponseBytes)
	_ = resp.Body.Close()
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	default:
		busy := code == http.StatusTooManyRequests || code == http.StatusRequestTimeout ||
			code == http.StatusUnauthorized || code == http.StatusNotFound
		return &statusError{resp.Status, code >= 400 && code < 500 && !busy}
	}
}

// withoutAddress removes the address from an error: it may contain a secret.
func withoutAddress(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("the webhook cannot be reached: %w", e.Err)
	}
	return err
}

// Families are the metrics of the hook.
func (h *Hook) Families() []metric.Family {
	families := []metric.Family{
		h.results.Family("buildyard_hostscan_webhook_posts_total", "Attempts to post an event to the webhook"),
		metric.CounterFamily("buildyard_hostscan_webhook_dropped_total", "Events dropped because the webhook failed",
			&h.dropped),
	}
	return metric.WithOldNames(families, map[string]string{
		"buildyard_hostscan_webhook_dropped_total": "buildyard_hostscan_webhook_lost_total",
	})
}
