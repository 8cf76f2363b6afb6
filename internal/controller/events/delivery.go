package events

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/retry"
	"github.com/buildyard/buildyard/internal/store"
)

// Intervals and limits of the delivery of events.
const (
	sendBatch   = 256 // events in one call of a target, plus or minus those of a transaction
	sendTime    = 30 * time.Second
	resendFirst = time.Second // delay after a failure, doubled up to the last
	resendLast  = time.Minute
	manyFailed  = 4           // subjects of which nothing arrived, and of no other: the target accepts nothing
	tendEvery   = time.Second // the progress of the targets is recorded, when it has changed
	tendTime    = 2 * time.Second
)

// Deliver sends the events to the targets as long as the leader term lasts.
func (e *Log) Deliver(ctx context.Context, term *record.Term) {
	if e == nil {
		return
	}
	for _, t := range e.targets {
		e.begin(t)
	}
	var wg sync.WaitGroup
	for _, t := range e.targets {
		wg.Go(func() { e.serve(ctx, t) })
	}
	e.tend(ctx, term)
	wg.Wait()
	e.leave(ctx, term)
}

// noted returns the recorded progress of a target. A record of other data, before a restore, does
// not count: then all stored events are sent.
func (e *Log) noted(t *target) int64 {
	setting, _, ok := e.db.Tables.Settings.Get(t.setting())
	if !ok {
		return 0
	}
	epoch, text, _ := strings.Cut(setting.Value, " ")
	rev, err := strconv.ParseInt(text, 10, 64)
	if err != nil || epoch != e.db.Store.Epoch() {
		return 0
	}
	return rev
}

func (e *Log) mark(t *target, rev int64) store.Change {
	value := e.db.Store.Epoch() + " " + strconv.FormatInt(rev, 10)
	return store.Put(e.db.Tables.Settings, t.setting(), &record.Setting{Value: value}, store.Any)
}

// serve sends events to one target. An event that does not arrive delays the later ones of its
// subject, and no others, unless nothing arrives.
func (e *Log) serve(ctx context.Context, t *target) {
	held, delays := deliveryBackoffs{}, retry.New(resendFirst, resendLast)
	for ctx.Err() == nil {
		events, more := e.unsent(t, held, sendBatch)
		if len(events) == 0 {
			select {
			case <-ctx.Done():
			case <-more:
			case <-held.first():
			}
			continue
		}
		arrived, err := t.send(ctx, events)
		e.note(t, arrived)
		failed := held.note(events, arrived)
		if err != nil && ctx.Err() == nil {
			e.db.Log.WarnContext(ctx, "event delivery failed; retrying", "target", t.name, "arrived",
				len(arrived), "of", len(events), "error", err)
		}
		if len(arrived) > 0 {
			delays.Reset()
		}
		if len(arrived) > 0 || failed < manyFailed {
			continue
		}
		_ = delays.Sleep(ctx)
		clear(held)
	}
}

// send sends events and returns the positions of those that arrived.
func (t *target) send(ctx context.Context, events []EncodedEvent) (arrived map[position]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	did, err := t.to.Send(ctx, events)
	arrived = map[position]bool{}
	for i, event := range events {
		if i < len(did) && did[i] {
			place, _ := parsePosition(event.ID)
			arrived[place] = true
		} else if err == nil {
			err = fmt.Errorf("event %s was not delivered", event.ID)
		}
	}
	return arrived, err
}

// subjectOf returns the subject of an event.
func subjectOf(record []byte) string {
	var of struct {
		Instance string `json:"instance_id"`
		Node     string `json:"node_id"`
		Template string `json:"template_id"`
	}
	_ = json.Unmarshal(record, &of)
	return cmp.Or(of.Instance, of.Node, of.Template)
}

// tend records the progress of the targets, when that has changed, and removes the oldest events.
func (e *Log) tend(ctx context.Context, term *record.Term) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		more, err := true, error(nil)
		for more && err == nil && ctx.Err() == nil {
			more, err = e.tidy(ctx, term)
		}
		if err != nil && ctx.Err() == nil {
			e.db.Log.WarnContext(ctx, "pruning delivered events failed", "error", err)
		}
	}
}

// tidy does one transaction of that, and reports whether there is more to do.
func (e *Log) tidy(ctx context.Context, term *record.Term) (more bool, err error) {
	old := e.surplus()
	changes := e.marks()
	for _, key := range old.keys {
		changes = append(changes, store.Delete(e.db.Tables.Events, key, store.Any))
	}
	for _, t := range e.targets {
		if n := old.lost[t.name]; n > 0 {
			changes = e.say(ctx, changes,
				farm.Event{Name: farm.EventsDropped, Extra: map[string]any{"count": n, "target": t.name}})
		}
	}
	if len(changes) == 0 {
		return false, nil
	}
	if err := term.Commit(ctx, changes...); err != nil {
		return false, err
	}
	e.forget(old.keys)
	for name, n := range old.lost {
		if count, due := e.dropped.Due(n, e.db.Now()); due {
			e.db.Log.ErrorContext(ctx, "undelivered events dropped: queue full", "alarm", api.AlarmEvents,
				"target", name, "count", count)
		}
	}
	return old.more, nil
}

// forget removes records that are gone from the store, before the store reports their deletion.
func (e *Log) forget(keys []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range keys {
		e.forgetLocked(key)
	}
}

// leave records the progress of the targets at the end of a leader term, so that the next one sends
// few events again. Placements do not depend on it, so it may be written after a leader term was
// ended by a failed write.
func (e *Log) leave(ctx context.Context, term *record.Term) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tendTime)
	defer cancel()
	if changes := e.marks(); len(changes) > 0 {
		if err := term.Fenced().Commit(ctx, changes...); err != nil {
			e.db.Log.DebugContext(ctx, "storing the event delivery position failed", "error", err)
		}
	}
}

// marks returns the changes that record the progress of the targets, where that has changed.
func (e *Log) marks() (changes []store.Change) {
	for _, t := range e.targets {
		if rev := t.done.Load(); rev > e.noted(t) {
			changes = append(changes, e.mark(t, rev))
		}
	}
	return changes
}

// expiredRecords are records to remove.
type expiredRecords struct {
	keys []string
	lost map[string]int // by target, the events that it has not received
	more bool           // there are more of them
}

// surplus returns the oldest records beyond the recent ones, in batches: those that every target
// has received, or any when there are too many.
func (e *Log) surplus() (s expiredRecords) {
	e.mu.Lock()
	defer e.mu.Unlock()
	left, over := e.count, e.count > e.max
	s.lost = map[string]int{}
	for _, h := range e.old {
		if left -= len(h.Lines); left < recentEvents || (!over && !e.everywhere(h.rev)) {
			break
		}
		for _, t := range e.targets {
			if n := t.lacksLocked(h); n > 0 {
				s.lost[t.name] += n
			}
		}
		if s.keys = append(s.keys, h.key); len(s.keys) == removeBatch {
			s.more = true
			return s
		}
	}
	return expiredRecords{} // not worth a write yet
}

// everywhere reports whether every target has the events up to a revision.
func (e *Log) everywhere(rev int64) bool {
	for _, t := range e.targets {
		if t.done.Load() < rev {
			return false
		}
	}
	return true
}

// Alarms returns the targets for which so many events wait that they may soon be lost.
func (e *Log) Alarms() (list []api.Alarm) {
	if e == nil {
		return nil
	}
	for _, t := range e.targets {
		if n := e.waiting(e.noted(t)); n >= e.max/2 {
			list = append(list, api.Alarm{
				Name: api.AlarmEvents, Subject: t.name, Action: "Check why the target does not accept them.",
				Message: fmt.Sprintf(
					"%d events are waiting for delivery (%s). Above %d the oldest are discarded: check why the "+
						"target does not accept them",
					n, t.name, e.max),
			})
		}
	}
	return list
}

// waiting counts the events that are later than a revision.
func (e *Log) waiting(rev int64) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range slices.Backward(e.old) {
		if h.rev <= rev {
			break
		}
		n += len(h.Lines)
	}
	return n
}
