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

	All map[string]any `json:"-"` // every field as it came, those of this kind of event too
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

// EventQuery says which events are asked for. The zero value asks for the newest 100.
type EventQuery struct {
	Filter string
	After  string        // the id of an event: only later ones
	Limit  int           // 1 to 1000; 0: 100
	Wait   time.Duration // with After: wait so long for one, at most a minute
}

// Events gives events, the oldest first.
func (c *Controller) Events(ctx context.Context, q EventQuery) ([]Event, error) {
	values := ListOptions{Filter: q.Filter, After: q.After, Limit: q.Limit}.query()
	if q.Wait > 0 {
		values.Set("wait", q.Wait.String())
	}
	return fetch[[]Event](ctx, c.service, get(pathEvents, values))
}

// eventWait is how long one question of a watch hangs: less than a try may take.
const eventWait = 20 * time.Second

// WatchEvents gives the events after one, or with "" those that come from now on, until
// ctx ends, the loop is left or an error is given. While the controller cannot be asked
// it goes on. An event that the controller has forgotten meanwhile is not told.
func (c *Controller) WatchEvents(ctx context.Context, filter, after string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if after == "" {
			last, err := c.Events(ctx, EventQuery{Limit: 1})
			if err != nil {
				yield(Event{}, err)
				return
			}
			if len(last) > 0 {
				after = last[0].ID
			}
		}
		for wait := firstPause; ; {
			list, err := c.Events(ctx, EventQuery{Filter: filter, After: after, Limit: 1000, Wait: min(eventWait, c.timeout/2)})
			if err != nil && (ctx.Err() != nil || !transient(err)) {
				yield(Event{}, ended(ctx, err))
				return
			}
			for _, e := range list {
				after = e.ID
				if !yield(e, nil) {
					return
				}
			}
			switch {
			case err != nil:
				wait = min(2*wait, longReturn)
			case len(list) > 0, after != "":
				wait = firstPause
				continue
			default: // without any event there is nothing to wait after
				wait = time.Second
			}
			if err := pause(ctx, wait); err != nil {
				yield(Event{}, err)
				return
			}
		}
	}
}
