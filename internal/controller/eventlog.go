package controller

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// EventOptions configures the targets of events. Without a target no events are written.
type EventOptions struct {
	Machine string // host of this process, as named in events
	File    EventTarget
	Push    EventTarget
	// Actor returns the principal of a request by its context; nil: it is unknown.
	Actor func(ctx context.Context) farm.Actor
}

// EventTarget accepts events. One call is running at a time.
type EventTarget interface {
	// Send delivers events, the oldest first, and reports which of them arrived: those of one
	// subject arrive in their order. The others are sent again, after a pause.
	Send(ctx context.Context, events []SentEvent) (arrived []bool, err error)
}

// SentEvent is an event to be sent to a target.
type SentEvent struct {
	ID      string // the same each time that it is sent
	Subject string // its subject: an instance, a node or a template; "": none of them
	Record  []byte // JSON, without a line's end
}

// Bounds of the stored events.
const (
	recentEvents = 1000  // that stay when they have been delivered, for queries
	maxEvents    = 20000 // including those that wait for their delivery: beyond that the oldest are removed
	eventBunch   = 100   // records that are removed at a time
)

// eventLog has the events of the store in the order of their transactions, and sends them to the
// targets while this replica holds the lease. It is an outbox: an event is committed with the
// change that it describes, and is removed when all targets have it.
type eventLog struct {
	c       *Controller
	machine string
	actor   func(ctx context.Context) farm.Actor
	targets []*eventTarget
	seen    chan struct{} // has a value when there are new records
	dropped record.LogLimiter

	mu      sync.Mutex     // guards what follows
	young   []pendingBatch // of revisions that the tables may not have in full yet
	old     []pendingBatch // in order; their revisions are below those of all later ones
	count   int            // events in old
	arrived chan struct{}
}

// pendingBatch is a record with its position in the order. A transaction of the store may carry
// several, of different callers.
type pendingBatch struct {
	rev  int64
	key  string
	base int // events of the same revision that precede it
	*record.EventBatch
}

// place returns the position of one of its events.
func (h pendingBatch) place(i int) eventPosition { return eventPosition{h.rev, h.base + i + 1} }

func before(a, b pendingBatch) int {
	return cmp.Or(cmp.Compare(a.rev, b.rev), strings.Compare(a.key, b.key))
}

// newEventLog returns nil when there is not a single target.
func newEventLog(c *Controller, o EventOptions) *eventLog {
	if o.Actor == nil {
		o.Actor = func(context.Context) farm.Actor { return farm.Actor{} }
	}
	e := &eventLog{c: c, machine: o.Machine, actor: o.Actor, seen: make(chan struct{}, 1), arrived: make(chan struct{})}
	for _, t := range []*eventTarget{{name: "file", to: o.File}, {name: "push", to: o.Push}} {
		if t.to != nil {
			e.targets = append(e.targets, t)
		}
	}
	if len(e.targets) == 0 {
		return nil
	}
	return e
}

// hook returns the commit hook that adds the events; nil while events are off.
func (e *eventLog) hook() record.CommitHook {
	if e == nil {
		return nil
	}
	return e.join
}

// join adds the events that follow from changes to them, as one record.
func (e *eventLog) join(ctx context.Context, changes []store.Change) []store.Change {
	return e.say(ctx, changes, e.told(changes)...)
}

// say adds events to changes. If a record of events is already among them, that record gets them.
func (e *eventLog) say(ctx context.Context, changes []store.Change, events ...farm.Event) []store.Change {
	var lines [][]byte
	for _, event := range events {
		if event.Time.IsZero() {
			event.Time = e.c.now()
		}
		if event.By == (farm.Actor{}) && farm.EventKinds[event.Name] == farm.APIAction {
			event.By = e.actor(ctx)
		}
		line, err := event.Record(e.machine)
		if err != nil { // of a value that is not JSON's: no caller has one
			e.c.log.ErrorContext(ctx, "an event cannot be written", "event", string(event.Name), "error", err)
			continue
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return changes
	}
	all, id := slices.Clone(changes), record.NewID()
	for i, change := range all {
		if said, ok := change.Value().(*record.EventBatch); ok {
			lines, id = slices.Concat(said.Lines, lines), change.ID()
			all = slices.Delete(all, i, i+1)
			break
		}
	}
	return append(all, store.Put(e.c.tables.Events, id, &record.EventBatch{Lines: lines}, store.Any))
}

// observe follows the records.
func (e *eventLog) observe(events []store.Event) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	some := false
	for _, event := range events {
		if event.Kind != record.KindEvent {
			continue
		}
		h, ok := event.New.(*record.EventBatch)
		if !ok || event.Old != nil { // none is written twice, but a restored store may have it at another revision
			e.forgetLocked(event.ID)
		}
		if ok {
			e.young, some = append(e.young, pendingBatch{rev: event.Rev, key: event.ID, EventBatch: h}), true
		}
	}
	if some {
		e.ring()
	}
}

func (e *eventLog) ring() {
	select {
	case e.seen <- struct{}{}:
	default:
	}
}

// forgetLocked removes a record that is no longer in the store.
func (e *eventLog) forgetLocked(key string) {
	is := func(h pendingBatch) bool { return h.key == key }
	if i := slices.IndexFunc(e.old, is); i >= 0 { // it is among the first
		e.count -= len(e.old[i].Lines)
		e.old = slices.Delete(e.old, i, i+1)
		return
	}
	e.young = slices.DeleteFunc(e.young, is)
}

// load reads the existing records. It is called after observe was subscribed.
func (e *eventLog) load() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	view := e.c.tables.Events.Snapshot()
	for key, h := range view.All() {
		_, rev, _ := view.Get(key)
		e.young = append(e.young, pendingBatch{rev: rev, key: key, EventBatch: h})
	}
	e.ring()
}

// follow puts new records into order, until the context ends.
func (e *eventLog) follow(ctx context.Context) {
	if e == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.seen:
		}
		for {
			settled, moved := e.c.store.AppliedRevision()
			if e.c.store.WaitDelivered(ctx) != nil { // else an event of that revision may arrive later
				return
			}
			if e.settle(settled) {
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-moved:
			}
		}
	}
}

// settle moves the records up to a revision into their final order, and reports whether those were
// all.
func (e *eventLog) settle(rev int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	slices.SortFunc(e.young, before)
	n, _ := slices.BinarySearchFunc(e.young, rev+1, func(h pendingBatch, rev int64) int { return cmp.Compare(h.rev, rev) })
	for _, h := range e.young[:n] {
		i, known := slices.BinarySearchFunc(e.old, h, before)
		if known {
			continue
		}
		if i > 0 && e.old[i-1].rev == h.rev {
			h.base = e.old[i-1].base + len(e.old[i-1].Lines)
		}
		e.old, e.count = slices.Insert(e.old, i, h), e.count+len(h.Lines)
	}
	e.young = slices.Delete(e.young, 0, n)
	if n > 0 {
		close(e.arrived)
		e.arrived = make(chan struct{})
	}
	return len(e.young) == 0
}

// eventPosition is a position between events: after the n-th one of a revision.
type eventPosition struct {
	rev int64
	n   int
}

// String returns the position as the id of the event before it.
func (p eventPosition) String() string { return strconv.FormatInt(p.rev, 36) + "-" + strconv.Itoa(p.n) }

// parseEventID reads the id of an event; ok is false when it cannot be one.
func parseEventID(id string) (p eventPosition, ok bool) {
	rev, n, found := strings.Cut(id, "-")
	if !found || len(id) > 40 {
		return p, false
	}
	var err, err2 error
	p.rev, err = strconv.ParseInt(rev, 36, 64)
	p.n, err2 = strconv.Atoi(n)
	return p, err == nil && err2 == nil && p.rev > 0 && p.n > 0
}

// after returns about limit events after a position, including all of the last one's revision, with
// their ids, and a channel that is closed when more arrive.
func (e *eventLog) after(at eventPosition, limit int) (list []SentEvent, more <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, _ := slices.BinarySearchFunc(e.old, at.rev, func(h pendingBatch, rev int64) int { return cmp.Compare(h.rev, rev) })
	for last := int64(0); i < len(e.old) && (len(list) < limit || e.old[i].rev == last); i++ {
		h := e.old[i]
		last = h.rev
		for n, line := range h.Lines {
			place := h.place(n)
			if h.rev == at.rev && place.n <= at.n {
				continue
			}
			list = append(list, SentEvent{ID: place.String(), Record: line})
		}
	}
	return list, e.arrived
}

// newest returns the last events, the oldest of them first.
func (e *eventLog) newest(limit int) []SentEvent {
	e.mu.Lock()
	i, n := len(e.old), 0
	for i > 0 && n < limit {
		i--
		n += len(e.old[i].Lines)
	}
	from := eventPosition{}
	if i < len(e.old) {
		from.rev = e.old[i].rev
	}
	e.mu.Unlock()
	list, _ := e.after(from, limit+n)
	return list[max(0, len(list)-limit):]
}

// last returns the position after the last event.
func (e *eventLog) last() (p eventPosition) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.old); n > 0 {
		p = eventPosition{e.old[n-1].rev, e.old[n-1].base + len(e.old[n-1].Lines)}
	}
	return p
}
