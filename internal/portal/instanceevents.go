package portal

import (
	"cmp"
	"slices"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/portal/eventtext"
)

// instanceEvents are the events of an instance, and who requested and ended it.
type instanceEvents struct {
	Events       eventTable
	HiddenReason string         // why the events are not shown; "": they are
	Requested    eventtext.Part // who did; empty: not recorded
	Ended        *endedBy       // nil: it is not ending
}

// endedBy is who ended an instance.
type endedBy struct {
	Who    eventtext.Part // empty: not recorded
	Time   time.Time      // of the request; zero: unknown
	Reason string         // why the system did, or why it is not known who did; "": none
}

// newInstanceEvents reads the events of an instance. note is its last message.
func newInstanceEvents(v *visit, id, state, note string) (out instanceEvents) {
	events, err := v.Events(v, client.EventQuery{Filter: "instance:" + id, Limit: firstEvents})
	out.HiddenReason = notShownReason(err)
	groups := eventtext.Groups(events)
	out.Events = newEventTable(v, groups[:min(embeddedRows, len(groups))], true)
	if e := findEvent(events, farm.EventStartVM); e != nil {
		out.Requested = eventtext.Event{Event: *e}.Actor()
	}
	if state == string(farm.Terminating) || state == string(farm.Terminated) {
		out.Ended = newEndedBy(events, out.HiddenReason, note)
	}
	return out
}

func newEndedBy(events []client.Event, hiddenReason, note string) *endedBy {
	if e := findEvent(events, farm.EventTerminateVM); e != nil {
		return &endedBy{Who: eventtext.Event{Event: *e}.Actor(), Time: time.Unix(e.Time, 0)}
	}
	if hiddenReason == "" && findEvent(events, farm.EventStartVM) != nil { // no caller requested it
		return &endedBy{Who: eventtext.Part{Text: "the system"}, Reason: note}
	}
	return &endedBy{Reason: cmp.Or(hiddenReason, "the events of that time are no longer kept")}
}

// findEvent returns the newest event with a name; nil: there is none.
func findEvent(events []client.Event, name farm.EventName) *client.Event {
	for _, e := range slices.Backward(events) {
		if e.Name == string(name) {
			return &e
		}
	}
	return nil
}
