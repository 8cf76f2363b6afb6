package peerqueue

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	// peerPoll is how often a connection without work looks whether a peer has got something.
	peerPoll = 50 * time.Millisecond
	// peerPatience is how long a pull that has no parts to fetch waits while nothing comes from other nodes.
	peerPatience = time.Second
	// ownerPatience is how long it waits at least for parts that other nodes own while something comes from them.
	ownerPatience = 10 * time.Second
	// surveyedSpans is how many spans a survey looks at: 4 GB of a disk.
	surveyedSpans = 1024
	// maxBusyTries is how many spans a connection looks at whose peers may all be busy.
	maxBusyTries = 8
)

// Availability is whether peers have a part of a file.
type Availability int

// The availabilities.
const (
	AtNoPeer   Availability = iota // none has it, or those that have it cannot be used now
	AtPeerSoon                     // as many reads by this pull as one peer gets are running there
	AtPeer                         // a read from a peer may succeed
)

// Options describe the spans of a queue. All fields are set.
type Options[S any] struct {
	Find func(span S) Availability
	// Owns reports whether this node fetches a span from the registry. Otherwise another one does.
	Owns func(span S) bool
}

// Queue hands out the missing spans of a pull with peers. A span comes from a peer that has it. Otherwise the node
// that owns it fetches it from the registry, and the others wait for that node, but not longer than peerPatience while
// nothing comes from peers, nor than patience otherwise.
//
// Where spans are is found out by surveys of some of them, which are so rare that they cost little however many there
// are. Before a span is handed out, it is looked at again.
type Queue[S any] struct {
	opts Options[S]

	mu       sync.Mutex // guards the fields below
	atPeers  []S        // that peers had when they were looked at, in the order in which they are handed out
	own      []S        // that this node has to fetch from the registry
	waiting  []S        // the others
	overdue  []S        // that peers did not send for too long: they come from the registry
	running  int        // handed out to be read from peers: they may come back
	begun    time.Time  // when the pull began
	owned    time.Time  // when a span that this node owns was handed out for the last time
	read     time.Time  // when that, or a read from a peer, succeeded for the last time
	surveyed time.Time  // when the last survey ended
}

// New returns a queue that begins at a random span, so that nodes that pull at the same time have different parts
// first.
func New[S any](spans []S, o Options[S]) *Queue[S] {
	if len(spans) > 0 {
		begin := rand.IntN(len(spans)) //nolint:gosec // not a secret: it spreads nodes
		spans = slices.Concat(spans[begin:], spans[:begin])
	}
	now := time.Now()
	return &Queue[S]{opts: o, waiting: spans, begun: now, owned: now, read: now}
}

// Source is where a span is to be fetched.
type Source int

// The sources.
const (
	Nowhere Source = iota // there is nothing to fetch
	Peer
	Registry
)

// Next waits for a span to fetch. ok is false when there are no more.
func (q *Queue[S]) Next(ctx context.Context, preferRegistry bool) (s S, from Source, ok bool, err error) {
	for {
		s, from, left := q.take(preferRegistry)
		if from != Nowhere || !left {
			return s, from, from != Nowhere, nil
		}
		select {
		case <-time.After(peerPoll):
		case <-ctx.Done():
			return s, Nowhere, false, context.Cause(ctx)
		}
	}
}

// take takes a span if there is one to fetch now. left reports whether any is left, or may come back.
func (q *Queue[S]) take(preferRegistry bool) (s S, from Source, left bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	order := [2]Source{Peer, Registry}
	if preferRegistry {
		order = [2]Source{Registry, Peer}
	}
	for i, from := range order {
		s, ok := q.popLocked(from)
		if !ok && i == 0 && q.surveyLocked() {
			s, ok = q.popLocked(from)
		}
		if ok && from == Registry {
			q.owned = time.Now()
			q.read = q.owned
		}
		if !ok && i == 0 && preferRegistry {
			s, ok = q.popOverdueLocked()
		}
		if ok {
			return s, from, true
		}
	}
	return s, Nowhere, len(q.atPeers)+len(q.own)+len(q.waiting)+len(q.overdue)+q.running > 0
}

// popOverdueLocked takes a span that was to come from another node, if that takes too long: any span when no read
// succeeds, otherwise one that no peer has yet.
func (q *Queue[S]) popOverdueLocked() (s S, ok bool) {
	if time.Since(q.read) > peerPatience {
		for _, list := range []*[]S{&q.overdue, &q.waiting, &q.atPeers} {
			if len(*list) > 0 {
				return removeAt(list, rand.IntN(len(*list))), true //nolint:gosec // not a secret: it spreads nodes
			}
		}
	}
	if len(q.overdue) > 0 {
		return removeAt(&q.overdue, len(q.overdue)-1), true
	}
	if time.Since(q.owned) <= patience(q.owned.Sub(q.begun)) {
		return s, false
	}
	for range min(maxBusyTries, len(q.waiting)) {
		i := rand.IntN(len(q.waiting)) //nolint:gosec // not a secret: it spreads nodes
		if q.sourceOf(q.waiting[i]) == Nowhere {
			return removeAt(&q.waiting, i), true
		}
	}
	return s, false
}

// patience returns how long a node that needed a time for the spans that it owns waits for those of other nodes. They
// share the registry, and need about as long: the slower it is, the further apart do they end.
func patience(needed time.Duration) time.Duration { return max(ownerPatience, needed/2) }

// removeAt removes an element of a list, whose order changes.
func removeAt[S any](list *[]S, i int) S {
	last := len(*list) - 1
	s := (*list)[i]
	(*list)[i] = (*list)[last]
	*list = (*list)[:last]
	return s
}

// popLocked takes a span that is to be fetched from a source now. Those that are elsewhere by now go to the end
// of another list.
func (q *Queue[S]) popLocked(from Source) (s S, ok bool) {
	if from == Registry {
		for len(q.own) > 0 {
			s, q.own = q.own[0], q.own[1:]
			now := q.sourceOf(s)
			if now == Registry {
				return s, true
			}
			q.addLocked(s, now)
		}
		return s, false
	}
	for i := 0; i < min(maxBusyTries, len(q.atPeers)); {
		switch s = q.atPeers[i]; q.opts.Find(s) {
		case AtPeer:
			q.atPeers[i] = q.atPeers[0]
			q.atPeers = q.atPeers[1:]
			q.running++
			return s, true
		case AtPeerSoon:
			i++
		default:
			q.atPeers[i] = q.atPeers[0]
			q.atPeers = q.atPeers[1:]
			q.waiting = append(q.waiting, s)
		}
	}
	return s, false
}

// surveyLocked finds out where the next of the waiting spans are, unless it did that a moment ago.
func (q *Queue[S]) surveyLocked() (done bool) {
	if time.Since(q.surveyed) < peerPoll || len(q.waiting) == 0 {
		return false
	}
	spans := q.waiting[:min(surveyedSpans, len(q.waiting))]
	q.waiting = q.waiting[len(spans):]
	for _, s := range spans {
		q.addLocked(s, q.sourceOf(s))
	}
	q.surveyed = time.Now()
	return true
}

// addLocked adds a span to the list of its source.
func (q *Queue[S]) addLocked(s S, from Source) {
	switch from {
	case Peer:
		q.atPeers = append(q.atPeers, s)
	case Registry:
		q.own = append(q.own, s)
	default:
		q.waiting = append(q.waiting, s)
	}
}

// sourceOf returns where a span comes from now; Nowhere: it is worth waiting for another node to fetch it.
func (q *Queue[S]) sourceOf(s S) Source {
	switch {
	case q.opts.Find(s) != AtNoPeer:
		return Peer
	case q.opts.Owns(s):
		return Registry
	}
	return Nowhere
}

// Done ends a read from a peer; a span that was not read is handed out again.
func (q *Queue[S]) Done(s S, read bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	switch {
	case read:
		q.read = time.Now()
	case time.Since(q.read) > peerPatience:
		q.overdue = append(q.overdue, s)
	default:
		q.waiting = append(q.waiting, s)
	}
}
