package store

import (
	"slices"
	"sync"
)

// dispatcher hands events to the subscribers from one goroutine, in the order in which the model applied them. Its
// queue has no bound: a commit must never wait for a subscriber, which may itself be waiting for a commit.
type dispatcher struct {
	done chan struct{} // closed when run has returned

	mu     sync.Mutex
	wake   sync.Cond
	queue  []Event
	subs   []*subscriber
	closed bool
}

type subscriber struct{ fn func([]Event) }

func newDispatcher() *dispatcher {
	d := &dispatcher{done: make(chan struct{})}
	d.wake.L = &d.mu
	return d
}

func (d *dispatcher) add(events []Event) {
	if len(events) == 0 {
		return
	}
	d.mu.Lock()
	d.queue = append(d.queue, events...)
	d.mu.Unlock()
	d.wake.Signal()
}

func (d *dispatcher) subscribe(fn func([]Event)) (cancel func()) {
	sub := &subscriber{fn}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.subs = append(slices.Clip(d.subs), sub)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.subs = slices.DeleteFunc(slices.Clone(d.subs), func(s *subscriber) bool { return s == sub })
	}
}

// run delivers until close; what was queued before is still delivered.
func (d *dispatcher) run() {
	defer close(d.done)
	for {
		events, subs := d.next()
		if events == nil {
			return
		}
		for _, sub := range subs {
			sub.fn(events)
		}
	}
}

func (d *dispatcher) next() ([]Event, []*subscriber) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.queue) == 0 && !d.closed {
		d.wake.Wait()
	}
	events := d.queue
	d.queue = nil
	return events, d.subs
}

func (d *dispatcher) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.wake.Signal()
	<-d.done
}
