package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/loadgen"
)

// counts are how many instances there are, and how many of them are how far.
type counts struct{ all, placed, started, failed int }

// observer follows the watch of all instances. Its lines are searched, not decoded,
// since it shares the cores with the server that it measures.
type observer struct {
	stop context.CancelFunc
	done chan struct{} // closed when the watch has ended

	mu     sync.Mutex // guards the fields below
	seen   map[string]stateOf
	counts counts
	synced bool
	err    error // why the watch ended
	waits  []*waiter
}

// stateOf is how far an instance is.
type stateOf struct{ placed, started, failed bool }

// waiter waits for a condition and receives the time at which it was met.
type waiter struct {
	so func(counts) bool
	at chan time.Time
}

// observe follows the watch until close, and waits until it has seen the present.
func observe(ctx context.Context, c *loadgen.Client) (*observer, error) {
	watching, stop := context.WithCancel(ctx)
	o := &observer{stop: stop, done: make(chan struct{}), seen: map[string]stateOf{}}
	go func() {
		defer close(o.done)
		err := c.WatchLines(watching, loadgen.IncludeExisting, o.line)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.err = err
	}()
	deadline := time.Now().Add(workLimit)
	for time.Now().Before(deadline) {
		o.mu.Lock()
		synced, err := o.synced, o.err
		o.mu.Unlock()
		if err != nil || synced {
			return o, err
		}
		time.Sleep(time.Millisecond)
	}
	o.close()
	return nil, errors.New("the watch did not say that it is synced")
}

func (o *observer) close() {
	o.stop()
	<-o.done
}

// What is looked for in a line.
var (
	keyType  = []byte(`"type":"`)
	keyID    = []byte(`"instance_id":"`)
	keyState = []byte(`"instance_state":"`)
	keyNode  = []byte(`"node_id":"`)
)

// field returns the text behind a key.
func field(line, key []byte) []byte {
	_, rest, _ := bytes.Cut(line, key)
	text, _, _ := bytes.Cut(rest, []byte{'"'})
	return text
}

// line takes one line of the watch.
func (o *observer) line(line []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch kind := string(field(line, keyType)); kind {
	case "set":
		state := string(field(line, keyState))
		o.set(field(line, keyID), stateOf{
			placed:  state != "Scheduling" || len(field(line, keyNode)) > 0,
			started: state == "Started", failed: state == "Error",
		})
	case "gone":
		id := field(line, keyID)
		o.count(o.seen[string(id)], -1)
		delete(o.seen, string(id))
	case "synced":
		o.synced = true
	case "ping":
	default:
		return fmt.Errorf("the watch said %.200q", line)
	}
	o.tell()
	return nil
}

// tell notifies the waiters whose condition is met. The caller holds mu.
func (o *observer) tell() {
	o.waits = slices.DeleteFunc(o.waits, func(w *waiter) bool {
		over := w.so(o.counts)
		if over {
			w.at <- time.Now()
		}
		return over
	})
}

func (o *observer) set(id []byte, now stateOf) {
	if old, known := o.seen[string(id)]; known {
		o.count(old, -1)
	}
	o.seen[string(id)] = now
	o.count(now, +1)
}

func (o *observer) count(s stateOf, by int) {
	o.counts.all += by
	for _, c := range []struct {
		is bool
		n  *int
	}{{s.placed, &o.counts.placed}, {s.started, &o.counts.started}, {s.failed, &o.counts.failed}} {
		if c.is {
			*c.n += by
		}
	}
}

// when begins to wait for a condition; the channel receives the time at which it was met.
func (o *observer) when(so func(counts) bool) <-chan time.Time {
	w := &waiter{so: so, at: make(chan time.Time, 1)}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waits = append(o.waits, w)
	o.tell()
	return w.at
}

// reached waits for the channel of when.
func (o *observer) reached(ctx context.Context, what string, at <-chan time.Time) (time.Time, error) {
	timer := time.NewTimer(workLimit)
	defer timer.Stop()
	select {
	case t := <-at:
		return t, nil
	case <-o.done:
		return time.Time{}, fmt.Errorf("the watch ended while %s was waited for: %w", what, o.err)
	case <-timer.C:
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Time{}, fmt.Errorf("waited %s for %s: of %d instances %d are placed, %d Started, %d failed",
		workLimit, what, o.counts.all, o.counts.placed, o.counts.started, o.counts.failed)
}

// whole reports instances in Error as an error.
func (o *observer) whole() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if failed := o.counts.failed; failed > 0 {
		return fmt.Errorf("%d instances failed", failed)
	}
	return nil
}

// ids returns every instance that is there.
func (o *observer) ids() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]string, 0, len(o.seen))
	for id := range o.seen {
		list = append(list, id)
	}
	return list
}
