package events

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

// Options configures the log of events. Without a target no events are written.
type Options struct {
	Machine string // host of this process, as named in events
	File    Target
	Push    Target
	// MaxStored bounds the events in the store; 0: the default. Beyond it the oldest are removed, also
	// when they were not delivered.
	MaxStored int
	// Actor returns the principal of a request by its context; nil: it is unknown.
	Actor func(ctx context.Context) farm.Actor
}

// Target accepts events. One call is running at a time.
type Target interface {
	// Send delivers events, the oldest first, and reports which of them arrived: those of one
	// subject arrive in their order. The others are sent again, after a pause.
	Send(ctx context.Context, events []EncodedEvent) (arrived []bool, err error)
}

// EncodedEvent is an event to be sent to a target.
type EncodedEvent struct {
	ID      string // the same each time that it is sent
	Subject string // its subject: an instance, a node or a template; "": none of them
	Record  []byte // JSON, without a line's end
}

// Bounds of the stored events.
const (
	recentEvents = 1000  // that stay when they have been delivered, for queries
	maxStored    = 20000 // including those that wait for their delivery: beyond that the oldest are removed
	removeBatch  = 100   // records that are removed at a time
)

// Log has the events of the store in the order of their transactions, and sends them to the
// targets while this replica holds the lease. It is an outbox: an event is committed with the
// change that it describes, and is removed when all targets have it.
type Log struct {
	db      record.DB
	max     int // stored events
	machine string
	actor   func(ctx context.Context) farm.Actor
	targets []*target
	wake    chan struct{} // has a value when there are new records
	dropped record.LogLimiter
	bursts  *bursts

	mu      sync.Mutex     // guards the fields below
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
func (h pendingBatch) place(i int) position { return position{h.rev, h.base + i + 1} }

func before(a, b pendingBatch) int {
	return cmp.Or(cmp.Compare(a.rev, b.rev), strings.Compare(a.key, b.key))
}

// New returns the log of a replica; nil when there is not a single target.
func New(db record.DB, o Options) *Log {
	if o.Actor == nil {
		o.Actor = func(context.Context) farm.Actor { return farm.Actor{} }
	}
	e := &Log{
		db: db, max: cmp.Or(o.MaxStored, maxStored), machine: o.Machine, actor: o.Actor, wake: make(chan struct{}, 1),
		arrived: make(chan struct{}), bursts: newBursts(),
	}
	for _, t := range []*target{{name: "file", to: o.File}, {name: "push", to: o.Push}} {
		if t.to != nil {
			e.targets = append(e.targets, t)
		}
	}
	if len(e.targets) == 0 {
		return nil
	}
	return e
}

// Hook returns the commit hook that adds the events; nil while events are off.
func (e *Log) Hook() record.CommitHook {
	if e == nil {
		return nil
	}
	return e.join
}

// Enabled reports whether events are on.
func (e *Log) Enabled() bool { return e != nil }

// Actor returns who makes a request.
func (e *Log) Actor(ctx context.Context) farm.Actor { return e.actor(ctx) }

// join adds the events that follow from changes to them, as one record.
func (e *Log) join(ctx context.Context, changes []store.Change) []store.Change {
	return e.say(ctx, changes, e.eventsFor(changes)...)
}

// say adds events to changes. If a record of events is already among them, that record gets them.
func (e *Log) say(ctx context.Context, changes []store.Change, events ...farm.Event) []store.Change {
	var lines [][]byte
	for _, event := range events {
		if event.Time.IsZero() {
			event.Time = e.db.Now()
		}
		if event.Actor == (farm.Actor{}) && farm.EventKinds[event.Name] == farm.APIAction {
			event.Actor = e.actor(ctx)
		}
		line, err := event.EncodeRecord(e.machine)
		if err != nil { // of a value that is not JSON's: no caller has one
			e.db.Log.ErrorContext(ctx, "encoding an event failed", "event", string(event.Name), "error", err)
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
	return append(all, store.Put(e.db.Tables.Events, id, &record.EventBatch{Lines: lines}, store.Any))
}

// Observe follows the records.
func (e *Log) Observe(events []store.Event) {
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
		e.wakeRun()
	}
}

func (e *Log) wakeRun() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// forgetLocked removes a record that is no longer in the store.
func (e *Log) forgetLocked(key string) {
	is := func(h pendingBatch) bool { return h.key == key }
	if i := slices.IndexFunc(e.old, is); i >= 0 { // it is among the first
		e.count -= len(e.old[i].Lines)
		e.old = slices.Delete(e.old, i, i+1)
		return
	}
	e.young = slices.DeleteFunc(e.young, is)
}

// Load reads the existing records. It is called after Observe was subscribed.
func (e *Log) Load() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	view := e.db.Tables.Events.Snapshot()
	for key, h := range view.All() {
		_, rev, _ := view.Get(key)
		e.young = append(e.young, pendingBatch{rev: rev, key: key, EventBatch: h})
	}
	e.wakeRun()
}

// Run puts new records into order, and summarizes many events, until the context ends.
func (e *Log) Run(ctx context.Context) {
	if e == nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { e.summarize(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
		}
		for {
			settled, moved := e.db.Store.AppliedRevision()
			if e.db.Store.WaitDelivered(ctx) != nil { // else an event of that revision may arrive later
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
func (e *Log) settle(rev int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	slices.SortFunc(e.young, before)
	n, _ := slices.BinarySearchFunc(e.young, rev+1,
		func(h pendingBatch, rev int64) int { return cmp.Compare(h.rev, rev) })
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

// position is a position between events: after the n-th one of a revision.
type position struct {
	rev int64
	n   int
}

// String returns the position as the id of the event before it.
func (p position) String() string { return strconv.FormatInt(p.rev, 36) + "-" + strconv.Itoa(p.n) }

// parsePosition reads the id of an event; ok is false when it cannot be one.
func parsePosition(id string) (p position, ok bool) {
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
func (e *Log) after(at position, limit int) (list []EncodedEvent, more <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, _ := slices.BinarySearchFunc(e.old, at.rev,
		func(h pendingBatch, rev int64) int { return cmp.Compare(h.rev, rev) })
	for last := int64(0); i < len(e.old) && (len(list) < limit || e.old[i].rev == last); i++ {
		h := e.old[i]
		last = h.rev
		for n, line := range h.Lines {
			place := h.place(n)
			if h.rev == at.rev && place.n <= at.n {
				continue
			}
			list = append(list, EncodedEvent{ID: place.String(), Record: line})
		}
	}
	return list, e.arrived
}

// newest returns the last events, the oldest of them first.
func (e *Log) newest(limit int) []EncodedEvent {
	e.mu.Lock()
	i, n := len(e.old), 0
	for i > 0 && n < limit {
		i--
		n += len(e.old[i].Lines)
	}
	from := position{}
	if i < len(e.old) {
		from.rev = e.old[i].rev
	}
	e.mu.Unlock()
	list, _ := e.after(from, limit+n)
	return list[max(0, len(list)-limit):]
}

// last returns the position after the last event.
func (e *Log) last() (p position) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.old); n > 0 {
		p = position{e.old[n-1].rev, e.old[n-1].base + len(e.old[n-1].Lines)}
	}
	return p
}
