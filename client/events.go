package client

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

const pathEvents = "/api/v1/events"

// Event is something that happened in the cloud.
type Event struct {
	ID          string `json:"id"`
	Name        string `json:"name"` // such as StartVM
	Type        string `json:"type"` // apiAction or systemAction
	SubType     string `json:"sub_type"`
	Time        int64  `json:"time"` // epoch seconds
	InstanceID  string `json:"instance_id"`
	MachineName string `json:"machineName"` // host of the controller

	All map[string]any `json:"-"` // every field as it came, including those of this kind of event
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *Event) UnmarshalJSON(raw []byte) error {
	type plain Event
	if err := json.Unmarshal(raw, (*plain)(e)); err != nil {
		return err
	}
	e.All = nil
	return json.Unmarshal(raw, &e.All)
}

// EventQuery selects events. The zero value selects the newest 100.
type EventQuery struct {
	Filter string        // expression, as in ListOptions
	After  string        // the id of an event: only later ones
	Limit  int           // 1 to 1000; 0: 100
	Wait   time.Duration // with After: wait so long for one, at most a minute
}

// Events returns events, the oldest first.
func (c *Controller) Events(ctx context.Context, q EventQuery) ([]Event, error) {
	values := ListOptions{Filter: q.Filter, After: q.After, Limit: q.Limit}.query()
	if q.Wait > 0 {
		values.Set("wait", q.Wait.String())
	}
	return fetch[[]Event](ctx, c.service, get(pathEvents, values))
}

// eventWait is how long one request of a watch waits: less than the timeout of a try.
const eventWait = 20 * time.Second

// EventWatch selects the events of a watch.
type EventWatch struct {
	Filter string // expression, as in ListOptions
	After  string // the id of an event: begin after it; "": begin now
	// OnInterrupt is called when a request to the controller failed, before it is retried; nil: not called.
	OnInterrupt func(err error)
}

// WatchEvents returns the events after one, or new events, until ctx ends, the loop is left or an error is
// returned. It retries while the controller is unreachable, unless the first request fails. Events that the
// controller has deleted since then are skipped.
func (c *Controller) WatchEvents(ctx context.Context, o EventWatch) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w := eventWatch{c: c, EventWatch: o, yield: yield}
		if err := again(ctx, o.OnInterrupt,
			func() (bool, error) { err := w.follow(ctx); return w.asked, err }); err != nil {
			yield(Event{}, err)
		}
	}
}

// eventWatch is a watch of events.
type eventWatch struct {
	EventWatch
	c     *Controller
	yield func(Event, error) bool
	asked bool // the controller has answered
}

// follow polls for events until that fails.
func (w *eventWatch) follow(ctx context.Context) error {
	if w.After == "" && !w.asked {
		last, err := w.c.Events(ctx, EventQuery{Limit: 1})
		if err != nil {
			return err
		}
		if w.asked = true; len(last) > 0 {
			w.After = last[0].ID
		}
	}
	for {
		q := EventQuery{Filter: w.Filter, After: w.After, Limit: 1000, Wait: min(eventWait, w.c.timeout/2)}
		if w.After == "" { // without any event there is nothing to wait after
			q.Wait = 0
			if err := pause(ctx, time.Second); err != nil {
				return err
			}
		}
		list, err := w.c.Events(ctx, q)
		if err != nil {
			return err
		}
		w.asked = true
		for _, e := range list {
			w.After = e.ID
			if !w.yield(e, nil) {
				return errLeft
			}
		}
	}
}
