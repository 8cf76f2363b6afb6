package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Limits of a push.
const (
	lanes      = 8 // concurrent requests
	pushTime   = 10 * time.Second
	readAnswer = 64 << 10 // of a response, so that its connection can be reused; in bytes
	refusals   = 5        // number of refusals after which an event is dropped
	failures   = 3        // number in one lane after which its other events wait for the next call
)

// HTTPSink posts each event in a separate request as JSON. Events of one subject are posted one
// after the other, those of different subjects concurrently.
type HTTPSink struct {
	url    string
	client *http.Client
	log    *slog.Logger

	mu      sync.Mutex
	refused map[string]int // event ID -> number of refusals by its target
}

var _ Target = (*HTTPSink)(nil)

// NewHTTPSink returns the target for an address, which may have a user and a password.
func NewHTTPSink(address string, log *slog.Logger) (*HTTPSink, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		// which may be a secret: it is not repeated
		return nil, errors.New("must be a URL such as https://host/path")
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: lanes, MaxConnsPerHost: lanes,
		IdleConnTimeout: time.Minute, TLSHandshakeTimeout: pushTime, ResponseHeaderTimeout: pushTime,
	}
	client := &http.Client{
		Transport: transport, Timeout: pushTime,
		// it would lose the body
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &HTTPSink{url: u.String(), client: client, log: log, refused: map[string]int{}}, nil
}

// Send implements Target.
func (p *HTTPSink) Send(ctx context.Context, events []EncodedEvent) ([]bool, error) {
	arrived := make([]bool, len(events))
	queues := make([][]int, lanes)
	for i, event := range events {
		h := fnv.New32a()
		_, _ = h.Write([]byte(event.Subject))
		lane := h.Sum32() % lanes
		queues[lane] = append(queues[lane], i)
	}
	errs := make([]error, lanes)
	var wg sync.WaitGroup
	for lane, queue := range queues {
		wg.Go(func() {
			errs[lane] = p.postAll(ctx, events, queue, arrived)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return arrived, err
		}
	}
	return arrived, nil
}

// postAll posts the events of a queue. After one that fails, the later events of its subject wait.
func (p *HTTPSink) postAll(ctx context.Context, events []EncodedEvent, queue []int, arrived []bool) (failed error) {
	held := map[string]bool{}
	for _, i := range queue {
		subject := events[i].Subject
		if held[subject] {
			continue
		}
		if err := p.post(ctx, events[i]); err != nil {
			held[subject], failed = true, err
			if len(held) == failures {
				break
			}
			continue
		}
		arrived[i] = true
	}
	return failed
}

// unwanted are the statuses that refuse an event because of the event itself.
var unwanted = map[int]bool{
	http.StatusBadRequest: true, http.StatusRequestEntityTooLarge: true,
	http.StatusUnsupportedMediaType: true, http.StatusUnprocessableEntity: true,
}

// post sends one event. nil: it was delivered, or its target refused it.
func (p *HTTPSink) post(ctx context.Context, event EncodedEvent) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(event.Record))
	if err != nil {
		return withoutAddress(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "buildyard-controller")
	req.Header.Set("X-Event-Id", event.ID) // the same when the event is sent again
	resp, err := p.client.Do(req)
	if err != nil {
		return withoutAddress(err)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, readAnswer)
	_ = resp.Body.Close()
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		p.forgive(event.ID)
		return nil
	case unwanted[resp.StatusCode] && p.countRefusal(event.ID):
		p.log.WarnContext(ctx, "event dropped: its target rejected it", "event", event.ID, "status",
			resp.StatusCode)
		return nil
	}
	return fmt.Errorf("the event target responded %s", resp.Status)
}

// countRefusal counts a refusal of an event, and reports whether it was the last one.
func (p *HTTPSink) countRefusal(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused[id]++
	if p.refused[id] < refusals {
		return false
	}
	delete(p.refused, id)
	return true
}

func (p *HTTPSink) forgive(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.refused, id)
}

// withoutAddress keeps the address, which may contain a password, out of a message.
func withoutAddress(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("the event target cannot be reached: %w", e.Err)
	}
	return errors.New("the event target cannot be reached")
}
