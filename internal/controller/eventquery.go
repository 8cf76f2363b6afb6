package controller

import (
	"context"
	"encoding/json"

	"github.com/buildyard/buildyard/internal/farm"
)

// LoggedEvent is an event as it was logged.
type LoggedEvent struct {
	SentEvent
	fields map[string]any
}

// Field returns the value of one of its keys, as in decoded JSON; nil when it has no such key.
func (e LoggedEvent) Field(key string) any { return e.fields[key] }

// EventQuery selects events.
type EventQuery struct {
	After string // the id of an event: only later ones; "": the newest
	Limit int
	Match func(LoggedEvent) bool // nil: all
}

// RecentEvents returns events, the oldest first. When none follows After yet, it waits for some
// until ctx ends, which is not an error.
func (c *Controller) RecentEvents(ctx context.Context, q EventQuery) ([]LoggedEvent, error) {
	if c.events == nil {
		return nil, farm.Refused("Events are not recorded: set SVC_ENABLE_EVENT_LOGGING or SVC_EVENT_LOG_URL on the controller")
	}
	if q.After == "" {
		return lastOf(c.events.newest(recentEvents), q), nil
	}
	at, ok := parseEventID(q.After)
	if !ok {
		return nil, farm.Invalid("after", "must be the id of an event")
	}
	if at.rev > c.events.last().rev { // of records from before a restore
		at = eventPosition{}
	}
	for {
		list, more := c.events.after(at, c.opts.bounds.events)
		if found := firstOfEvents(list, q); len(found) > 0 || ctx.Err() != nil {
			return found, nil
		}
		if n := len(list); n > 0 {
			at, _ = parseEventID(list[n-1].ID)
		}
		select {
		case <-ctx.Done():
		case <-more:
		}
	}
}

// matching reports whether a query selects an event.
func (q EventQuery) matching(e SentEvent) (LoggedEvent, bool) {
	logged := LoggedEvent{SentEvent: e}
	if q.Match == nil {
		return logged, true
	}
	_ = json.Unmarshal(e.Record, &logged.fields)
	return logged, q.Match(logged)
}

func firstOfEvents(list []SentEvent, q EventQuery) (found []LoggedEvent) {
	for _, e := range list {
		if logged, ok := q.matching(e); ok {
			if found = append(found, logged); len(found) == q.Limit {
				break
			}
		}
	}
	return found
}

func lastOf(list []SentEvent, q EventQuery) (found []LoggedEvent) {
	for _, e := range list {
		if logged, ok := q.matching(e); ok {
			found = append(found, logged)
		}
	}
	return found[max(0, len(found)-q.Limit):]
}
