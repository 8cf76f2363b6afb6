package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/metric/metrictest"
	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/host"
)

// endpoint accepts posts in memory, so that timeouts use the test's fake clock.
type endpoint struct {
	answer func(try int) (code int, after time.Duration)
	tries  int
	ids    []string
	took   []api.HostEvent // acknowledged events
}

func (e *endpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	e.tries++
	code, after := e.answer(e.tries)
	select {
	case <-time.After(after):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if code == 0 {
		return nil, errors.New("no route to it")
	}
	raw, _ := io.ReadAll(r.Body)
	var event api.HostEvent
	if err := json.Unmarshal(raw, &event); err != nil {
		return nil, err
	}
	e.ids = append(e.ids, event.ID)
	if code < 300 {
		e.took = append(e.took, event)
	}
	return &http.Response{StatusCode: code, Status: fmt.Sprint(code), Body: http.NoBody, Request: r}, nil
}

func event(n, packages int) host.Event {
	return host.Event{Time: time.Unix(int64(n), 0), Trigger: host.ByRealTime, New: make([]host.Package,
		packages), Counts: host.EventCounts{New: n}}
}

// numbers returns the numbers of the acknowledged events.
func (e *endpoint) numbers() (out []int) {
	for _, event := range e.took {
		out = append(out, event.Counts.Packages)
	}
	return out
}

func newHook(t *testing.T, e *endpoint) *Hook {
	t.Helper()
	h, err := New(Options{URL: "http://example.test/hook", Host: "build-7", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h.client.Transport = e
	return h
}

// TestDelivery: events arrive in their order, again with the same ID if they were not accepted; events that are
// not accepted for long are dropped, and the next one reports it.
func TestDelivery(t *testing.T) {
	ok := func(int) (int, time.Duration) { return 204, 0 }
	for name, c := range map[string]struct {
		answer func(try int) (int, time.Duration)
		took   string
		tries  int
		missed int // as reported by the last event
	}{
		"takes all": {ok, "[1 2 3]", 3, 0},
		"busy at first": {func(try int) (int, time.Duration) {
			return map[bool]int{true: 503, false: 200}[try < 4],
				0
		}, "[1 2 3]", 6, 0},
		"not there first": {func(try int) (int, time.Duration) {
			return map[bool]int{true: 0, false: 200}[try < 3],
				0
		}, "[1 2 3]", 5, 0},
		"hangs at first": {func(try int) (int, time.Duration) {
			return 200,
				map[bool]time.Duration{true: time.Hour}[try == 1]
		}, "[1 2 3]", 4, 0},
		"refuses the first": {func(try int) (int, time.Duration) {
			return map[bool]int{true: 422, false: 200}[try == 1],
				0
		}, "[2 3]", 3, 0},
		"redirects": {func(int) (int, time.Duration) { return 302, 0 }, "[]", 3 * maxAttempts, 0},
		"is dead for long": {func(try int) (int, time.Duration) {
			return map[bool]int{true: 500, false: 200}[try <= 2*maxAttempts], 0
		}, "[3]", 2*maxAttempts + 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &endpoint{answer: c.answer}
				h := newHook(t, e)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { h.Run(ctx); close(ended) }()
				for i := range 3 {
					h.Enqueue(event(i+1, 1))
				}
				time.Sleep(time.Hour)
				cancel()
				<-ended
				if got := fmt.Sprint(e.numbers()); got != c.took || e.tries != c.tries {
					t.Errorf("took %s after %d tries, want %s, %d", got, e.tries, c.took, c.tries)
				}
				if n := len(e.took); n > 0 && e.took[n-1].Missed != c.missed {
					t.Errorf("it says that %d were missed", e.took[n-1].Missed)
				}
				if name == "busy at first" && (e.ids[0] != e.ids[3] || e.ids[0] == e.ids[4]) {
					t.Errorf("ids %q", e.ids)
				}
			})
		})
	}
}

// TestBounds: nothing waits for the endpoint, and what waits has a bound.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{answer: func(int) (int, time.Duration) { return 200, 0 }}
		h := newHook(t, e)
		for i := range 100 {
			h.Enqueue(event(i, 1))
		}
		if len(h.queue) != maxQueue || h.droppedEvents != 100-maxQueue {
			t.Errorf("%d wait, %d missed", len(h.queue), h.droppedEvents)
		}
		for i := range 10 {
			h.Enqueue(event(i, 1000))
		}
		if len(h.queue) != maxQueuedItems/1000 {
			t.Errorf("%d large ones wait", len(h.queue))
		}
		h.Enqueue(event(77, 2*maxQueuedItems)) // which is sent alone
		ctx, cancel := context.WithCancel(t.Context())
		go h.Run(ctx)
		synctest.Wait()
		cancel()
		if got := fmt.Sprint(e.numbers()); got != "[77]" || e.took[0].Missed != 109-0+1 {
			t.Errorf("took %s, missed %d", got, e.took[0].Missed)
		}
		if m := metrictest.Values(h.Families()); m["buildyard_hostscan_webhook_dropped_total"] != 110 ||
			m["buildyard_hostscan_webhook_posts_total{ok}"] != 1 {
			t.Errorf("%v", m)
		}
	})
}

// TestTheEnd: what waits when the program ends is tried once more, for a moment.
func TestTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{answer: func(int) (int, time.Duration) { return 200, time.Hour }}
		h := newHook(t, e)
		for i := range 5 {
			h.Enqueue(event(i, 1))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		h.Run(ctx)
		if took := time.Since(began); took > shutdownTimeout {
			t.Errorf("it took %s", took)
		}
	})
}

// TestWire posts an event to a real server, and checks the request. The password of the address is in no error.
func TestWire(t *testing.T) {
	got := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		got <- fmt.Sprintf("%s %s %s:%s %s", r.Method, r.Header.Get("Content-Type"), user, password, raw)
	}))
	address := strings.Replace(s.URL, "http://", "http://me:sesame@", 1)
	h, err := New(Options{URL: address, Host: "build-7", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	e := event(1, 0)
	p := catalog.Package{Kind: catalog.NPM, Name: "lodash", Version: "4.17.11", Locations: []string{"/x/package.json"}}
	e.New, e.Removed = []host.Package{{ID: 7, Created: time.Unix(1, 2), Package: p}}, []host.Package{{Package: p}}
	raw, _, err := h.encode(e)
	if err == nil {
		err = h.post(t.Context(), raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	came := <-got
	for _, want := range []string{
		"POST application/json me:sesame {", `"host":"build-7"`, `"cause":"real-time"`,
		`"counts":{"packages":1,"vulnerabilities":0,"gone":0}`,
		`"creation_time":"1970-01-01T00:00:01.000000002Z"`, `"vulnerabilities":[]`,
		`"gone":[{"name":"lodash","version":"4.17.11","type":"npm"}]`,
	} {
		if !strings.Contains(came, want) {
			t.Errorf("no %s in %s", want, came)
		}
	}
	s.Close()
	if err := h.post(t.Context(), raw); err == nil || strings.Contains(err.Error(), "sesame") {
		t.Errorf("error %v", err)
	}
	for _, bad := range []string{"", "example.test", "ftp://example.test", "http://", "http://%zz"} {
		if _, err := New(Options{URL: bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
