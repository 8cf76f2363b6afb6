package authstore

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// TestPruneRemovesExpiredNonces, a bounded number at a time, and nothing else.
func TestPruneRemovesExpiredNonces(t *testing.T) {
	onEach(t, func(t *testing.T, c *cluster) {
		a, b := c.open(t), c.open(t)
		now := time.Now()
		var changes []store.Change
		const most = 1100
		const n = most + 700
		a.nonces.maxPrunedPerCall = most
		for i := range n {
			id, err := nonceID(auth.Nonce{byte(i), byte(i >> 8), byte(i >> 16)},
				now.Add(-time.Duration(i%100+1)*time.Second))
			must(t, err)
			changes = append(changes, store.Put(a.nonces.table, id, &struct{}{}, store.IfAbsent))
		}
		for part := range slices.Chunk(changes, a.st.Limits().MaxOps) {
			must(t, a.st.Commit(t.Context(), part...))
		}
		live := auth.Nonce{1}
		if first, err := a.Nonces().Use(t.Context(), live, now.Add(time.Minute)); !first || err != nil {
			t.Fatal(first, err)
		}
		first, err := a.PruneExpired(t.Context(), now)
		if err != nil || first < most || first >= most+pruneChunk {
			t.Errorf("%d removed at once: %v", first, err)
		}
		if rest, err := a.PruneExpired(t.Context(), now); err != nil || rest != n-first {
			t.Errorf("%d removed, then %d: %v", first, rest, err)
		}
		for _, r := range []*replica{a, b.caughtUp(t)} {
			if r.nonces.table.Len() != 1 {
				t.Errorf("%d are left", r.nonces.table.Len())
			}
			if first, err := r.Nonces().Use(t.Context(), live, now.Add(time.Minute)); first || err != nil {
				t.Errorf("a used mark was forgotten: %t, %v", first, err)
			}
		}
		if removed, err := b.PruneExpired(t.Context(), now.Add(time.Minute)); removed != 0 || err != nil {
			t.Errorf("%d removed before their time is over: %v", removed, err)
		}
		if removed, err := b.PruneExpired(t.Context(), now.Add(62*time.Second)); removed != 1 || err != nil {
			t.Errorf("%d removed: %v", removed, err)
		}
	})
}

func TestNoncesAreBounded(t *testing.T) {
	r := newCluster(mem.New()).open(t)
	r.nonces.maxRemembered = 3
	use := func(n byte) error {
		_, err := r.Nonces().Use(t.Context(), auth.Nonce{n}, soon())
		return err
	}
	for n := range byte(3) {
		must(t, use(n))
	}
	if err := use(3); !errors.Is(err, auth.ErrNoncesFull) {
		t.Errorf("one too many: %v", err)
	}
	if _, err := r.PruneExpired(t.Context(), soon().Add(time.Minute)); err != nil {
		t.Error(err)
	}
	must(t, use(4))
}

// TestNonceIDs: IDs of nonces are ordered by time, and contain what they stand for.
func TestNonceIDs(t *testing.T) {
	var last string
	at := time.Unix(0, 0)
	for range 1000 {
		at = at.Add(time.Duration(rand.Int64N(int64(1e6))) * time.Second)
		mark := auth.Nonce{byte(rand.Uint32()), 255}
		id, err := nonceID(mark, at)
		must(t, err)
		got, forget, err := parseNonce(id)
		if err != nil || got != mark || forget.Before(at) || forget.After(at.Add(time.Second)) {
			t.Fatalf("%s: %x, %s, %v", id, got, forget, err)
		}
		if id[:8] < last {
			t.Fatalf("%s comes before %s", id, last)
		}
		last = id[:8]
	}
	for _, at := range []time.Time{{}, time.Unix(-2, 0), time.Unix(maxExpirySeconds, 0)} {
		if id, err := nonceID(auth.Nonce{}, at); err == nil {
			t.Errorf("%s gives %s", at, id)
		}
	}
}

func FuzzNonceID(f *testing.F) {
	id, _ := nonceID(auth.Nonce{1, 2, 255}, time.Unix(1<<33, 0))
	f.Add(id)
	f.Add("")
	f.Add("0000000000000000000000000000000000")
	f.Add("000000000000000000000000000000000V")
	f.Fuzz(func(t *testing.T, id string) {
		mark, forget, err := parseNonce(id)
		if err != nil {
			return
		}
		if again, err := nonceID(mark, forget.Add(-time.Second)); forget.Unix() > 0 && (err != nil || again != id) {
			t.Fatalf("%q is read as %q: %v", id, again, err)
		}
	})
}
