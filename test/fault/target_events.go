package fault

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// The events target.
const (
	eventNodes = 3
	eventSlots = 8 // of each node
	eventTime  = time.Minute
)

// eventsTarget kills the controller while clients work and it logs its events to the registry's
// file and to an endpoint, which sometimes fails. Everything that was acknowledged must arrive at
// both, in order.
func eventsTarget(ctx context.Context, s *scene) (r result, err error) {
	template, err := s.pushTiny(ctx)
	if err != nil {
		return r, err
	}
	to := &endpoint{}
	server := httptest.NewServer(to)
	defer server.Close()
	if err := s.cloud.End(); err != nil {
		return r, err
	}
	s.cloud.With("--enable-event-logging", "--event-log-url", server.URL)
	if err := s.cloud.Boot(ctx); err != nil {
		return r, err
	}
	if err := s.simulateMany(ctx, "sim", eventNodes, eventSlots, "--boot", "20ms", "--pull", "30ms", "--exec",
		"20ms"); err != nil {
		return r, err
	}
	if err := s.awaitNodes(ctx, eventNodes); err != nil {
		return r, err
	}
	s.machines = func() ([]machine, error) { return simMachines(s.dir) }
	s.calmTime, s.capacity = time.Minute, eventNodes*eventSlots
	r, err = s.play(ctx, loadOptions{
		Workers: 12, Keep: 6, Longest: time.Second, Templates: []string{template}, Seed: s.seed,
		Pause: 50 * time.Millisecond,
	}, s.strikeEvents)
	if err != nil {
		return r, err
	}
	f, err := s.checkEvents(ctx, to)
	r.count(f)
	return r, err
}

// strikeEvents kills the controller at work, and starts it again.
func (s *scene) strikeEvents(ctx context.Context) error {
	if err := s.cloud.Await(ctx); err != nil {
		return err
	}
	rig.Pause(ctx, s.between(50*time.Millisecond, 2500*time.Millisecond))
	if err := s.cloud.Kill(); err != nil {
		return err
	}
	s.killed("controller")
	rig.Pause(ctx, s.between(0, 200*time.Millisecond))
	return s.cloud.Start()
}

// checkEvents compares the history with the delivered events, once everything has arrived: the
// cloud is empty by now, so that every instance has ended.
func (s *scene) checkEvents(ctx context.Context, to *endpoint) (f findings, err error) {
	calls := s.history.all()
	book := ledgerOf(calls)
	for _, c := range calls {
		if c.Acked && c.State == "Started" {
			for _, id := range c.Instances {
				book.get(id).started = min(book.get(id).started, c.End)
			}
		}
	}
	for deadline := time.Now().Add(eventTime); ; {
		pushed := to.told()
		logged, err := loggedEvents(filepath.Join(s.cloud.Base, "files", "central-logs", "event"))
		if err != nil {
			return f, err
		}
		f = findings{}
		checkInstanceEvents("the endpoint", book.lives, pushed, &f)
		checkInstanceEvents("event.log", book.lives, logged, &f)
		if len(f.Problems) == 0 || time.Now().After(deadline) {
			s.say("%d events were pushed, %d logged", len(pushed), len(logged))
			return f, nil
		}
		if !rig.Pause(ctx, time.Second) {
			return f, ctx.Err()
		}
	}
}

// endpoint takes events. One of eight calls fails, and one of those takes the event all
// the same.
type endpoint struct {
	mu     sync.Mutex // guards the fields below
	calls  int
	events []toldEvent
}

var _ http.Handler = (*endpoint)(nil)

// ServeHTTP implements http.Handler.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var line strings.Builder
	if _, err := bufio.NewReader(http.MaxBytesReader(w, r.Body, 1<<20)).WriteTo(&line); err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls++
	fails := e.calls%8 == 0
	if !fails || e.calls%64 == 0 {
		e.events = append(e.events, readTold(line.String()))
	}
	if fails {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// told returns the events that have arrived so far, in their order.
func (e *endpoint) told() []toldEvent {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.events)
}

// loggedEvents reads the log of events, with the files that were set aside.
func loggedEvents(dir string) (events []toldEvent, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the log of events: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != "event.log" {
			names = append(names, e.Name())
		}
	}
	for _, name := range append(names, "event.log") {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("read the log of events: %w", err)
		}
		for line := range strings.Lines(string(raw)) {
			if !strings.HasPrefix(line, "Log file created at: ") {
				events = append(events, readTold(line))
			}
		}
	}
	return events, nil
}
