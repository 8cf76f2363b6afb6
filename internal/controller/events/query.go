package events

import (
	"context"
	"encoding/json"

	"github.com/buildyard/buildyard/internal/farm"
)

// LoggedEvent is an event as it was logged.
type LoggedEvent struct {
	EncodedEvent
	fields map[string]any
}

// Field returns the value of one of its keys, as in decoded JSON; nil when it has no such key.
func (e LoggedEvent) Field(key string) any { return e.fields[key] }

// Query selects events.
type Query struct {
	After string // the id of an event: only later ones; "": the newest
	Limit int
	Match func(LoggedEvent) bool // nil: all
}

// Recent returns events, the oldest first. When none follows After yet, it waits for some
// until ctx ends, which is not an error.
func (e *Log) Recent(ctx context.Context, q Query) ([]LoggedEvent, error) {
	if e == nil {
		return nil,
			farm.Refused("Events are not recorded: set SVC_ENABLE_EVENT_LOGGING or SVC_EVENT_LOG_URL on the controller")
	}
	if q.After == "" {
		return lastOf(e.newest(recentEvents), q), nil
	}
	at, ok := parsePosition(q.After)
	if !ok {
		return nil, farm.Invalid("after", "must be the ID of an event")
	}
	if at.rev > e.last().rev { // of records from before a restore
		at = position{}
	}
	for {
		list, more := e.after(at, e.max)
		if found := firstOfEvents(list, q); len(found) > 0 || ctx.Err() != nil {
			return found, nil
		}
		if n := len(list); n > 0 {
			at, _ = parsePosition(list[n-1].ID)
		}
		select {
		case <-ctx.Done():
		case <-more:
		}
	}
}

// matching reports whether a query selects an event.
func (q Query) matching(e EncodedEvent) (LoggedEvent, bool) {
	logged := LoggedEvent{EncodedEvent: e}
	if q.Match == nil {
		return logged, true
	}
	_ = json.Unmarshal(e.Record, &logged.fields)
	return logged, q.Match(logged)
}

func firstOfEvents(list []EncodedEvent, q Query) (found []LoggedEvent) {
	for _, e := range list {
		if logged, ok := q.matching(e); ok {
			if found = append(found, logged); len(found) == q.Limit {
				break
			}
		}
	}
	return found
}

func lastOf(list []EncodedEvent, q Query) (found []LoggedEvent) {
	for _, e := range list {
		if logged, ok := q.matching(e); ok {
			found = append(found, logged)
		}
	}
	return found[max(0, len(found)-q.Limit):]
}
