package transfer

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	// peerConnections is the number of connections of a pull with peers that prefer peers. Two more prefer the
	// registry, so that what no node has yet comes to the first one while nodes exchange the rest.
	peerConnections     = 4
	registryConnections = 2
	// peerPoll is how often a connection without work looks whether a peer has got something.
	peerPoll = 50 * time.Millisecond
	// peerPatience is how long a pull without anything to fetch waits for other nodes to get their parts from the
	// registry.
	peerPatience = time.Second
	// surveyedSpans is how many spans a survey looks at: 4 GB of a disk.
	surveyedSpans = 1024
	// maxBusyTries is how many spans a connection looks at whose peers may all be busy.
	maxBusyTries = 8
)

// fetchQueue hands out the missing spans of a pull with peers. A span comes from a peer that has it. Otherwise the node
// that owns it fetches it from the registry, and the others wait for that node.
//
// Where spans are is found out by surveys of some of them, which are so rare that they cost little however many there
// are. Before a span is handed out, it is looked at again.
type fetchQueue struct {
	peers Peers

	mu       sync.Mutex // guards the fields below
	atPeers  []peerSpan // that peers had when they were looked at, in the order in which they are handed out
	own      []peerSpan // that this node has to fetch from the registry
	waiting  []peerSpan // the others
	running  int        // handed out to be read from peers: they may come back
	found    time.Time  // when there was something to do for the last time
	surveyed time.Time  // when the last survey ended
}

// newFetchQueue begins at a random span, so that nodes that pull at the same time have different parts first.
func newFetchQueue(peers Peers, spans []peerSpan) *fetchQueue {
	if len(spans) > 0 {
		begin := rand.IntN(len(spans)) //nolint:gosec // not a secret: it spreads nodes
		spans = slices.Concat(spans[begin:], spans[:begin])
	}
	return &fetchQueue{peers: peers, waiting: spans, found: time.Now()}
}

// source is where a span is to be fetched.
type source int

const (
	atNone source = iota
	atPeer
	atRegistry
)

// next waits for a span to fetch. ok is false when there are no more.
func (q *fetchQueue) next(ctx context.Context, preferRegistry bool) (s peerSpan, from source, ok bool, err error) {
	for {
		s, from, left := q.take(preferRegistry)
		if from != atNone || !left {
			return s, from, from != atNone, nil
		}
		select {
		case <-time.After(peerPoll):
		case <-ctx.Done():
			return s, atNone, false, context.Cause(ctx)
		}
	}
}

// take takes a span if there is one to fetch now. left reports whether any is left, or may come back.
func (q *fetchQueue) take(preferRegistry bool) (s peerSpan, from source, left bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	order := [2]source{atPeer, atRegistry}
	if preferRegistry {
		order = [2]source{atRegistry, atPeer}
	}
	for i, from := range order {
		s, ok := q.popLocked(from)
		if !ok && i == 0 && q.surveyLocked() {
			s, ok = q.popLocked(from)
		}
		if ok {
			q.found = time.Now()
			return s, from, true
		}
	}
	if preferRegistry && time.Since(q.found) > peerPatience {
		for _, list := range []*[]peerSpan{&q.waiting, &q.atPeers} {
			if n := len(*list); n > 0 {
				i := rand.IntN(n) //nolint:gosec // not a secret: it spreads nodes
				s, (*list)[i] = (*list)[i], (*list)[n-1]
				*list = (*list)[:n-1]
				return s, atRegistry, true
			}
		}
	}
	return s, atNone, len(q.atPeers)+len(q.own)+len(q.waiting)+q.running > 0
}

// popLocked takes a span that is to be fetched from a source now. Those that are elsewhere by now go to the end
// of another list.
func (q *fetchQueue) popLocked(from source) (s peerSpan, ok bool) {
	if from == atRegistry {
		for len(q.own) > 0 {
			s, q.own = q.own[0], q.own[1:]
			now := q.sourceOf(s)
			if now == atRegistry {
				return s, true
			}
			q.addLocked(s, now)
		}
		return s, false
	}
	for i := 0; i < min(maxBusyTries, len(q.atPeers)); {
		switch s = q.atPeers[i]; q.find(s) {
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
func (q *fetchQueue) surveyLocked() (done bool) {
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
func (q *fetchQueue) addLocked(s peerSpan, from source) {
	switch from {
	case atPeer:
		q.atPeers = append(q.atPeers, s)
	case atRegistry:
		q.own = append(q.own, s)
	default:
		q.waiting = append(q.waiting, s)
	}
}

// sourceOf returns where a span comes from now; atNone: it is worth waiting for another node to fetch it.
func (q *fetchQueue) sourceOf(s peerSpan) source {
	switch {
	case q.find(s) != AtNoPeer:
		return atPeer
	case !s.atPeers || q.peers.Owns(s.target.name, s.off):
		return atRegistry
	}
	return atNone
}

// find is Peers.Find of a span.
func (q *fetchQueue) find(s peerSpan) Availability {
	if !s.atPeers {
		return AtNoPeer
	}
	return q.peers.Find(s.target.name, s.off, s.end)
}

// done ends a read from a peer; a span that was not read is handed out again.
func (q *fetchQueue) done(s peerSpan, read bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	if !read {
		q.waiting = append(q.waiting, s)
	}
}
