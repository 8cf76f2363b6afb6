package store

import (
	"context"
	"slices"
	"sync"
)

// dispatcher hands events to the subscribers from one goroutine, in the order in which the model applied them. Its
// queue has no bound: a commit must never wait for a subscriber, which may itself be waiting for a commit.
type dispatcher struct {
	done chan struct{} // closed when run has returned

	mu             sync.Mutex
	wake           sync.Cond
	queue          []Event
	queuedCount    int64         // events so far
	deliveredCount int64         // of them
	advanced       chan struct{} // closed when deliveredCount grows; nil while no caller waits for that
	subscribers    []*subscriber
	closed         bool
}

type subscriber struct{ fn func([]Event) }

func newDispatcher() *dispatcher {
	d := &dispatcher{done: make(chan struct{})}
	d.wake.L = &d.mu
	return d
}

func (d *dispatcher) enqueue(events []Event) {
	if len(events) == 0 {
		return
	}
	d.mu.Lock()
	d.queue = append(d.queue, events...)
	d.queuedCount += int64(len(events))
	d.mu.Unlock()
	d.wake.Signal()
}

func (d *dispatcher) subscribe(fn func([]Event)) (cancel func()) {
	sub := &subscriber{fn}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.subscribers = append(slices.Clip(d.subscribers), sub)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.subscribers = slices.DeleteFunc(slices.Clone(d.subscribers), func(s *subscriber) bool { return s == sub })
	}
}

// run delivers until close; what was queued before is still delivered.
func (d *dispatcher) run() {
	defer close(d.done)
	for {
		events, subs := d.nextEvents()
		if events == nil {
			return
		}
		for _, sub := range subs {
			sub.fn(events)
		}
		d.recordDelivered(len(events))
	}
}

// recordDelivered records that events have been delivered.
func (d *dispatcher) recordDelivered(events int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deliveredCount += int64(events)
	if d.advanced != nil {
		close(d.advanced)
		d.advanced = nil
	}
}

// waitDelivered returns when everything that was queued before the call has been delivered, or ctx ends.
func (d *dispatcher) waitDelivered(ctx context.Context) error {
	want := int64(-1)
	for {
		d.mu.Lock()
		if want < 0 {
			want = d.queuedCount
		}
		if d.deliveredCount >= want {
			d.mu.Unlock()
			return nil
		}
		if d.advanced == nil {
			d.advanced = make(chan struct{})
		}
		moved := d.advanced
		d.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (d *dispatcher) nextEvents() ([]Event, []*subscriber) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.queue) == 0 && !d.closed {
		d.wake.Wait()
	}
	events := d.queue
	d.queue = nil
	return events, d.subscribers
}

func (d *dispatcher) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.wake.Signal()
	<-d.done
}
