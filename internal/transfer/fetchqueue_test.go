package transfer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
)

// fakePeers are peers of which a test decides what they have.
type fakePeers struct {
	mu   sync.Mutex
	find func(off int64) Availability
	owns func(off int64) bool
}

func (p *fakePeers) Find(_ string, off, _ int64) Availability {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.find(off)
}

func (p *fakePeers) Owns(_ string, off int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owns(off)
}

func (p *fakePeers) Read(context.Context, string, []blob.Run, []byte, func([]byte) error) error {
	return ErrNoPeer
}

// spansOf returns spans that are at offsets 0, 1, and so on; every tenth can come from the registry only.
func spansOf(count int) (spans []peerSpan) {
	t := &pullTarget{name: "disk.img"}
	for i := range int64(count) {
		spans = append(spans, peerSpan{fetchSpan{target: t}, i, i + 1, i%10 != 9})
	}
	return spans
}

// TestFetchQueue: whatever peers have and own, each span is handed out until it is fetched once, and the queue ends.
func TestFetchQueue(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testFetchQueue(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func testFetchQueue(t *testing.T, random *rand.Rand) {
	const count = 300
	changing := random.IntN(2) == 0
	fixed := rand.New(rand.NewPCG(random.Uint64(), 1)).Perm(3 * count)
	finds := rand.New(rand.NewPCG(random.Uint64(), 2))
	peers := &fakePeers{
		find: func(off int64) Availability {
			if changing {
				return Availability(finds.IntN(3))
			}
			return Availability(fixed[off] % 3)
		},
		owns: func(off int64) bool { return fixed[count+off]%4 == 0 },
	}
	q, fetched := newFetchQueue(peers, spansOf(count)), make([]int, count)
	var mu sync.Mutex
	var work sync.WaitGroup
	for n := range registryConnections + peerConnections {
		work.Go(func() {
			for {
				s, from, ok, err := q.next(t.Context(), n < registryConnections)
				if err != nil || !ok {
					return
				}
				time.Sleep(time.Millisecond)
				mu.Lock()
				read := from == atRegistry || random.IntN(3) > 0
				if read {
					fetched[s.off]++
				}
				if from == atPeer && !s.atPeers {
					t.Errorf("span %d came from a peer", s.off)
				}
				mu.Unlock()
				if from == atPeer {
					q.done(s, read)
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

// TestFetchQueueWaits: a pull waits for what other nodes own, takes it from them when they have it, and fetches it from
// the registry when they do not get it.
func TestFetchQueueWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, have := time.Now(), AtNoPeer
		peers := &fakePeers{
			find: func(int64) Availability { return have }, owns: func(off int64) bool { return off == 0 },
		}
		q := newFetchQueue(peers, spansOf(3))
		expect := func(preferRegistry bool, want source, after time.Duration) {
			t.Helper()
			s, from, ok, err := q.next(t.Context(), preferRegistry)
			if from != want || !ok || err != nil || time.Since(begun) < after || time.Since(begun) > after+2*peerPoll {
				t.Errorf("span %d from %d, %v, %v, after %v", s.off, from, ok, err, time.Since(begun))
			}
			if from == atPeer {
				q.done(s, true)
			}
		}
		expect(true, atRegistry, 0)
		expect(true, atRegistry, peerPatience)
		peers.mu.Lock()
		have = AtPeer
		peers.mu.Unlock()
		expect(false, atPeer, peerPatience)
		if _, from, ok, err := q.next(t.Context(), false); from != atNone || ok || err != nil {
			t.Errorf("at the end: %d, %v, %v", from, ok, err)
		}
	})
}

// BenchmarkFetchQueue hands out the spans of 60,000 frames that no peer has: those that this node owns, one of 8.
func BenchmarkFetchQueue(b *testing.B) {
	spans := spansOf(15_000)
	units := make([][]byte, 8)
	for i := range units {
		units[i] = make([]byte, 15_000)
	}
	peers := &fakePeers{
		find: func(off int64) Availability {
			for _, u := range units {
				if u[off] != 0 {
					return AtPeer
				}
			}
			return AtNoPeer
		},
		owns: func(off int64) bool { return off%8 == 0 },
	}
	var q *fetchQueue
	for b.Loop() {
		if q == nil || len(q.own)+len(q.waiting) < 14_000 {
			q = newFetchQueue(peers, spans)
		}
		q.take(true)
		q.take(false)
	}
}
