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
)

// fetchQueue hands out the missing spans of a pull with peers. A span comes from a peer that has it. Otherwise the node
// that owns it fetches it from the registry, and the others wait for that node.
type fetchQueue struct {
	peers Peers

	mu      sync.Mutex // guards the fields below
	spans   []peerSpan // to be handed out
	running int        // handed out to be read from peers: they may come back
	found   time.Time  // when there was something to do for the last time
}

// newFetchQueue begins at a random span, so that nodes that pull at the same time have different parts first.
func newFetchQueue(peers Peers, spans []peerSpan) *fetchQueue {
	if len(spans) > 0 {
		begin := rand.IntN(len(spans)) //nolint:gosec // not a secret: it spreads nodes
		spans = slices.Concat(spans[begin:], spans[:begin])
	}
	return &fetchQueue{peers: peers, spans: spans, found: time.Now()}
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
	order := []source{atPeer, atRegistry}
	if preferRegistry {
		slices.Reverse(order)
	}
	for _, from := range order {
		for i := range q.spans {
			if q.sourceOf(q.spans[i]) == from {
				q.found = time.Now()
				return q.removeLocked(i, from), from, true
			}
		}
	}
	if preferRegistry && len(q.spans) > 0 && time.Since(q.found) > peerPatience {
		i := rand.IntN(len(q.spans)) //nolint:gosec // not a secret: it spreads nodes
		return q.removeLocked(i, atRegistry), atRegistry, true
	}
	return s, atNone, len(q.spans)+q.running > 0
}

// sourceOf returns where a span comes from now; atNone: it is worth waiting for a peer.
func (q *fetchQueue) sourceOf(s peerSpan) source {
	if !s.atPeers {
		return atRegistry
	}
	switch found := q.peers.Find(s.target.name, s.off, s.end); {
	case found == AtPeer:
		return atPeer
	case found == AtNoPeer && q.peers.Owns(s.target.name, s.off):
		return atRegistry
	}
	return atNone
}

func (q *fetchQueue) removeLocked(i int, from source) peerSpan {
	s := q.spans[i]
	q.spans = slices.Delete(q.spans, i, i+1)
	if from == atPeer {
		q.running++
	}
	return s
}

// done ends a read from a peer; a span that was not read is handed out again.
func (q *fetchQueue) done(s peerSpan, read bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	if !read {
		q.spans = append(q.spans, s)
	}
}
