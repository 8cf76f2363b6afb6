package controllerrest

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/rest"
)

// Limits of a query for events.
const (
	maxEvents     = 1000
	defaultEvents = 100
	maxEventWait  = time.Minute
)

// eventRoutes returns the routes of the event log. They are an extension of the API.
func (s *server) eventRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /api/v1/events", Permission: "view_logs", Waits: true, Handle: s.listEvents},
	}
}

// listEvents returns the newest events, or those after one that the client has seen, for which it may wait.
func (s *server) listEvents(r *rest.Request) (any, error) {
	p := r.Params
	q := events.Query{
		After: p.Text("after", maxName), Limit: p.Int("limit", defaultEvents, 1, maxEvents),
		Match: filterParam(p, eventFields),
	}
	if seen := s.visibilityOf(r); seen.isRestricted {
		q.Match = both(seen.seesEvent, q.Match)
	}
	wait := p.Duration("wait", maxEventWait)
	if wait > 0 && q.After == "" {
		p.RecordError("wait", "requires after")
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	if wait > 0 {
		release, err := s.watches.Acquire(r.Request)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	list, err := s.controller.Events.Recent(ctx, q)
	if err != nil {
		return nil, err
	}
	pieces := rest.Fragments{listOpen}
	for i, e := range list {
		if i > 0 {
			pieces = append(pieces, listComma)
		}
		pieces = append(pieces, []byte(`{"id":"`+e.ID+`",`), e.Record[1:])
	}
	return append(pieces, listClose), nil
}

// both returns the conjunction of two conditions, of which the second may be nil.
func both[T any](first, second func(T) bool) func(T) bool {
	if second == nil {
		return first
	}
	return func(v T) bool { return first(v) && second(v) }
}
