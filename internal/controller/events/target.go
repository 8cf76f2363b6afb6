package events

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/retry"
)

// target is a target with the progress of its delivery.
type target struct {
	name string
	to   Target
	done atomic.Int64 // revision up to which it has everything

	arrived map[position]bool // after that; mu of the Log guards it
}

// setting returns the id of the record with the progress of the target.
func (t *target) setting() string { return "events-" + t.name }

// lacksLocked counts the events of a record that have not arrived.
func (t *target) lacksLocked(h pendingBatch) (n int) {
	if h.rev <= t.done.Load() {
		return 0
	}
	for i := range h.Lines {
		if !t.arrived[h.place(i)] {
			n++
		}
	}
	return n
}

// begin sets the progress of a target to the recorded one.
func (e *Log) begin(t *target) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.done.Store(e.noted(t))
	t.arrived = map[position]bool{}
}

// deliveryBackoffs has the subjects with an event that did not arrive: their events wait.
type deliveryBackoffs map[string]deliveryBackoff

// deliveryBackoff is how long a subject waits.
type deliveryBackoff struct {
	until  time.Time
	delays *retry.Backoff
}

// waits reports whether a subject waits now.
func (h deliveryBackoffs) waits(subject string, now time.Time) bool {
	return now.Before(h[subject].until)
}

// first returns a channel that has a value when the first backoff has ended; nil when none is
// running. It is called when there is nothing to send, and removes the ended backoffs.
func (h deliveryBackoffs) first() <-chan time.Time {
	now := time.Now()
	maps.DeleteFunc(h, func(subject string, _ deliveryBackoff) bool { return !h.waits(subject, now) })
	var first time.Time
	for _, one := range h {
		if first.IsZero() || one.until.Before(first) {
			first = one.until
		}
	}
	if first.IsZero() {
		return nil
	}
	return time.After(time.Until(first))
}

// note starts a backoff, each time twice as long, for the subjects with events that did not arrive,
// and for no others. It returns their number.
func (h deliveryBackoffs) note(sent []EncodedEvent, arrived map[position]bool) (many int) {
	failed := map[string]bool{}
	for _, event := range sent {
		place, _ := parsePosition(event.ID)
		failed[event.Subject] = failed[event.Subject] || !arrived[place]
	}
	for subject, is := range failed {
		if !is {
			delete(h, subject)
			continue
		}
		delays := cmp.Or(h[subject].delays, retry.New(resendFirst, resendLast))
		h[subject] = deliveryBackoff{time.Now().Add(delays.Next()), delays}
		many++
	}
	return many
}

// unsent returns at most limit events that have not arrived at a target and whose subject has no
// backoff, and a channel that is closed when more arrive.
func (e *Log) unsent(t *target, held deliveryBackoffs, limit int) (list []EncodedEvent, more <-chan struct{}) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range e.old[e.behindLocked(t.done.Load()):] {
		for i, line := range h.Lines {
			place := h.place(i)
			if t.arrived[place] {
				continue
			}
			if len(list) == limit {
				return list, e.arrived
			}
			if subject := subjectOf(line); !held.waits(subject, now) {
				list = append(list, EncodedEvent{ID: place.String(), Subject: subject, Record: line})
			}
		}
	}
	return list, e.arrived
}

// behindLocked returns the index of the first record that is later than a revision.
func (e *Log) behindLocked(rev int64) int {
	i, _ := slices.BinarySearchFunc(e.old, rev+1,
		func(h pendingBatch, rev int64) int { return cmp.Compare(h.rev, rev) })
	return i
}

// note records which events have arrived, and moves the target past the transactions that have
// arrived in full.
func (e *Log) note(t *target, arrived map[position]bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.Copy(t.arrived, arrived)
	done := t.done.Load()
	for rest := e.old[e.behindLocked(done):]; len(rest) > 0; {
		rev, lacks, n := rest[0].rev, 0, 0
		for ; n < len(rest) && rest[n].rev == rev; n++ {
			lacks += t.lacksLocked(rest[n])
		}
		if lacks > 0 {
			break
		}
		done, rest = rev, rest[n:]
	}
	t.done.Store(done)
	maps.DeleteFunc(t.arrived, func(place position, _ bool) bool { return place.rev <= done })
}
