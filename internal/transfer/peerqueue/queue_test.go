package peerqueue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The connections of a pull.
const (
	registryConnections = 2
	peerConnections     = 4
)

// fakePeers are peers of which a test decides what they have.
type fakePeers struct {
	mu   sync.Mutex
	find func(span int) Availability
	owns func(span int) bool
}

// newQueue returns a queue of spans that are numbered; every tenth can come from the registry only.
func (p *fakePeers) newQueue(count int) *Queue[int] {
	spans := make([]int, count)
	for i := range spans {
		spans[i] = i
	}
	return New(spans, Options[int]{
		Find: func(span int) Availability {
			p.mu.Lock()
			defer p.mu.Unlock()
			if registryOnly(span) {
				return AtNoPeer
			}
			return p.find(span)
		},
		Owns: func(span int) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return registryOnly(span) || p.owns(span)
		},
	})
}

func registryOnly(span int) bool { return span%10 == 9 }

// TestQueue: whatever peers have and own, each span is handed out until it is fetched once, and the queue ends.
func TestQueue(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testQueue(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func testQueue(t *testing.T, random *rand.Rand) {
	const count = 300
	changing := random.IntN(2) == 0
	fixed := rand.New(rand.NewPCG(random.Uint64(), 1)).Perm(3 * count)
	finds := rand.New(rand.NewPCG(random.Uint64(), 2))
	peers := &fakePeers{
		find: func(off int) Availability {
			if changing {
				return Availability(finds.IntN(3))
			}
			return Availability(fixed[off] % 3)
		},
		owns: func(off int) bool { return fixed[count+off]%4 == 0 },
	}
	q, fetched := peers.newQueue(count), make([]int, count)
	var mu sync.Mutex
	var work sync.WaitGroup
	for n := range registryConnections + peerConnections {
		work.Go(func() {
			for {
				s, from, ok, err := q.Next(t.Context(), n < registryConnections)
				if err != nil || !ok {
					return
				}
				time.Sleep(time.Millisecond)
				mu.Lock()
				read := from == Registry || random.IntN(3) > 0
				if read {
					fetched[s]++
				}
				if from == Peer && registryOnly(s) {
					t.Errorf("span %d came from a peer", s)
				}
				mu.Unlock()
				if from == Peer {
					q.Done(s, read)
				}
			}
		})
	}
	work.Wait()
	for i, n := range fetched {
		if n != 1 {
			t.Errorf("span %d was fetched %d times", i, n)
		}
	}
}

// TestWaiting: a pull waits for what other nodes own, takes it from them when they have it, and fetches it from
// the registry when they do not get it.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, have := time.Now(), AtNoPeer
		peers := &fakePeers{
			find: func(int) Availability { return have }, owns: func(off int) bool { return off == 0 },
		}
		q := peers.newQueue(3)
		expect := func(preferRegistry bool, want Source, after time.Duration) {
			t.Helper()
			s, from, ok, err := q.Next(t.Context(), preferRegistry)
			if from != want || !ok || err != nil || time.Since(begun) < after || time.Since(begun) > after+2*peerPoll {
				t.Errorf("span %d from %d, %v, %v, after %v", s, from, ok, err, time.Since(begun))
			}
			if from == Peer {
				q.Done(s, true)
			}
		}
		expect(true, Registry, 0)
		expect(true, Registry, peerPatience)
		peers.mu.Lock()
		have = AtPeer
		peers.mu.Unlock()
		expect(false, Peer, peerPatience)
		if _, from, ok, err := q.Next(t.Context(), false); from != Nowhere || ok || err != nil {
			t.Errorf("at the end: %d, %v, %v", from, ok, err)
		}
	})
}

// TestRefusals: a pull ends although the peer that has all, or that owns all, refuses each read at any pace.
func TestRefusals(t *testing.T) {
	for _, find := range []Availability{AtPeer, AtPeerSoon} {
		for _, pace := range []time.Duration{0, 100 * time.Millisecond, 2900 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				const count = 100
				peers := &fakePeers{
					find: func(int) Availability { return find }, owns: func(int) bool { return false },
				}
				q, begun := peers.newQueue(count), time.Now()
				var work sync.WaitGroup
				for n := range registryConnections + peerConnections {
					work.Go(func() {
						for time.Since(begun) < time.Hour {
							s, from, ok, err := q.Next(t.Context(), n < registryConnections)
							if err != nil || !ok {
								return
							}
							time.Sleep(time.Millisecond + pace)
							if from == Peer {
								q.Done(s, false)
							}
						}
					})
				}
				work.Wait()
				if took, limit := time.Since(begun), peerPatience+(count+10)*(pace+peerPoll); took > limit {
					t.Errorf("%v, refusals after %v: it took %v", find, pace, took)
				}
			})
		}
	}
}

// TestSlowOwner: a node whose parts come slowly holds a pull to its pace for a limited time only.
func TestSlowOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		peers := &fakePeers{
			find: func(span int) Availability { // a span each 500 ms
				if time.Since(begun) > time.Duration(span)*500*time.Millisecond {
					return AtPeer
				}
				return AtNoPeer
			},
			owns: func(int) bool { return false },
		}
		q := peers.newQueue(1000)
		var work sync.WaitGroup
		for n := range registryConnections + peerConnections {
			work.Go(func() {
				for {
					s, from, ok, err := q.Next(t.Context(), n < registryConnections)
					if err != nil || !ok {
						return
					}
					time.Sleep(time.Millisecond)
					if from == Peer {
						q.Done(s, true)
					}
				}
			})
		}
		work.Wait()
		if took := time.Since(begun); took > 2*ownerPatience {
			t.Errorf("it took %v", took)
		}
	})
}

// TestPatience: nodes that share a slow registry end their parts further apart, and wait longer for each other.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const own = 20 // of 40 spans
		q := New[int](nil, Options[int]{
			Find: func(int) Availability { return AtNoPeer },
			Owns: func(span int) bool { return span == 1 },
		})
		q.waiting = append(slices.Repeat([]int{1}, own), make([]int, own)...)
		ctx, cancel := context.WithCancel(t.Context())
		var peers sync.WaitGroup
		defer peers.Wait()
		defer cancel()
		peers.Go(func() {
			for ctx.Err() == nil { // other nodes send parts
				q.mu.Lock()
				q.read = time.Now()
				q.mu.Unlock()
				time.Sleep(peerPatience / 2)
			}
		})
		var last time.Time
		for fetched := 0; ; fetched++ {
			begun := time.Now()
			s, from, ok, err := q.Next(t.Context(), true)
			if err != nil || !ok || from != Registry {
				t.Fatalf("%d, %v, %v, %v", s, from, ok, err)
			}
			if s == 1 {
				last = begun
				time.Sleep(5 * time.Second)
				continue
			}
			waited, want := time.Since(last), 5*time.Second*(own-1)/2
			if fetched != own || waited < want || waited > want+time.Second {
				t.Errorf("a span of another node came from the registry after %d spans and %v, want %d and %v",
					fetched, waited, own, want)
			}
			return
		}
	})
}

// BenchmarkQueue hands out the spans of 60,000 frames that no peer has: those that this node owns, one of 8.
func BenchmarkQueue(b *testing.B) {
	units := make([][]byte, 8)
	for i := range units {
		units[i] = make([]byte, 15_000)
	}
	peers := &fakePeers{
		find: func(off int) Availability {
			for _, u := range units {
				if u[off] != 0 {
					return AtPeer
				}
			}
			return AtNoPeer
		},
		owns: func(off int) bool { return off%8 == 0 },
	}
	var q *Queue[int]
	for b.Loop() {
		if q == nil || len(q.own)+len(q.waiting) < 14_000 {
			q = peers.newQueue(15_000)
		}
		q.take(true)
		q.take(false)
	}
}
