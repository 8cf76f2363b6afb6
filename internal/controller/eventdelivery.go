package controller

import (
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
	"github.com/buildyard/buildyard/internal/store"
)

// Intervals and limits of the delivery of events.
const (
	sendBatch   = 256 // events in one call of a target, plus or minus those of a transaction
	sendTime    = 30 * time.Second
	resendFirst = time.Second // pause after a failure, doubled up to the last
	resendLast  = time.Minute
	manyFailed  = 4           // subjects of which nothing arrived, and of no other: the target accepts nothing
	tendEvery   = time.Second // the progress of the targets is recorded, when it has changed
	tendTime    = 2 * time.Second
)

// deliver sends the events to the targets as long as the leader term lasts.
func (e *eventLog) deliver(ctx context.Context, r *record.Term) {
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
	e.tend(ctx, r)
	wg.Wait()
	e.leave(ctx, r)
}

// noted returns the recorded progress of a target. A record of other data, before a restore, does
// not count: then all stored events are sent.
func (e *eventLog) noted(t *eventTarget) int64 {
	setting, _, ok := e.c.tables.Settings.Get(t.setting())
	if !ok {
		return 0
	}
	epoch, text, _ := strings.Cut(setting.Value, " ")
	rev, err := strconv.ParseInt(text, 10, 64)
	if err != nil || epoch != e.c.store.Epoch() {
		return 0
	}
	return rev
}

func (e *eventLog) mark(t *eventTarget, rev int64) store.Change {
	value := e.c.store.Epoch() + " " + strconv.FormatInt(rev, 10)
	return store.Put(e.c.tables.Settings, t.setting(), &record.Setting{Value: value}, store.Any)
}

// serve sends events to one target. An event that does not arrive delays the later ones of its
// subject, and no others, unless nothing arrives.
func (e *eventLog) serve(ctx context.Context, t *eventTarget) {
	held, pause := deliveryBackoffs{}, resendFirst
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
			e.c.log.WarnContext(ctx, "events could not be delivered and are sent again", "target", t.name, "arrived", len(arrived), "of", len(events), "error", err)
		}
		if len(arrived) > 0 {
			pause = resendFirst
		}
		if len(arrived) > 0 || failed < manyFailed {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, resendLast)
		clear(held)
	}
}

// send sends events and returns the positions of those that arrived.
func (t *eventTarget) send(ctx context.Context, events []SentEvent) (arrived map[eventPosition]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	did, err := t.to.Send(ctx, events)
	arrived = map[eventPosition]bool{}
	for i, event := range events {
		if i < len(did) && did[i] {
			place, _ := parseEventID(event.ID)
			arrived[place] = true
		} else if err == nil {
			err = fmt.Errorf("event %s did not arrive", event.ID)
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
	return firstOf(of.Instance, of.Node, of.Template)
}

// tend records the progress of the targets, when that has changed, and removes the oldest events.
func (e *eventLog) tend(ctx context.Context, r *record.Term) {
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
			more, err = e.tidy(ctx, r)
		}
		if err != nil && ctx.Err() == nil {
			e.c.log.WarnContext(ctx, "event prune failed", "error", err)
		}
	}
}

// tidy does one transaction of that, and reports whether there is more to do.
func (e *eventLog) tidy(ctx context.Context, w *record.Term) (more bool, err error) {
	old := e.surplus()
	changes := e.marks()
	for _, key := range old.keys {
		changes = append(changes, store.Delete(e.c.tables.Events, key, store.Any))
	}
	for _, t := range e.targets {
		if n := old.lost[t.name]; n > 0 {
			changes = e.say(ctx, changes, farm.Event{Name: farm.EventsDropped, Extra: map[string]any{"count": n, "target": t.name}})
		}
	}
	if len(changes) == 0 {
		return false, nil
	}
	if err := w.Commit(ctx, changes...); err != nil {
		return false, err
	}
	e.forget(old.keys)
	for name, n := range old.lost {
		if count, due := e.dropped.Due(n, e.c.now()); due {
			e.c.log.ErrorContext(ctx, "undelivered events dropped: queue full", "alarm", api.AlarmEvents,
				"target", name, "count", count)
		}
	}
	return old.more, nil
}

// forget removes records that are gone from the store, before the store reports their deletion.
func (e *eventLog) forget(keys []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range keys {
		e.forgetLocked(key)
	}
}

// leave records the progress of the targets at the end of a leader term, so that the next one sends
// few events again. Placements do not depend on it, so it may be written after a leader term was
// ended by a failed write.
func (e *eventLog) leave(ctx context.Context, r *record.Term) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tendTime)
	defer cancel()
	if changes := e.marks(); len(changes) > 0 {
		if err := r.Fenced().Commit(ctx, changes...); err != nil {
			e.c.log.DebugContext(ctx, "how far events were delivered is not noted", "error", err)
		}
	}
}

// marks returns the changes that record the progress of the targets, where that has changed.
func (e *eventLog) marks() (changes []store.Change) {
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
func (e *eventLog) surplus() (s expiredRecords) {
	e.mu.Lock()
	defer e.mu.Unlock()
	left, over := e.count, e.count > e.c.opts.bounds.events
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
		if s.keys = append(s.keys, h.key); len(s.keys) == eventBunch {
			s.more = true
			return s
		}
	}
	return expiredRecords{} // not worth a write yet
}

// everywhere reports whether every target has the events up to a revision.
func (e *eventLog) everywhere(rev int64) bool {
	for _, t := range e.targets {
		if t.done.Load() < rev {
			return false
		}
	}
	return true
}

// alarms returns the targets for which so many events wait that they may soon be lost.
func (e *eventLog) alarms() (list []api.Alarm) {
	if e == nil {
		return nil
	}
	for _, t := range e.targets {
		if n := e.waiting(e.noted(t)); n >= e.c.opts.bounds.events/2 {
			list = append(list, api.Alarm{
				Name: api.AlarmEvents, Subject: t.name, Action: "Look at why the target does not take them.",
				Message: fmt.Sprintf("%d events wait for their delivery (%s), and of more than %d the oldest go: look at why their target does not take them",
					n, t.name, e.c.opts.bounds.events),
			})
		}
	}
	return list
}

// waiting counts the events that are later than a revision.
func (e *eventLog) waiting(rev int64) (n int) {
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
