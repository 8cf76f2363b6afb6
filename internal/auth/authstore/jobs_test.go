package authstore

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/periodic"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
	"github.com/buildyard/buildyard/internal/store/storetest"
)

// TestJobs: used nonces are removed within seconds, a key a month after its end, and signing keys
// that are a month old are followed by another one, which ends no session.
func TestJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(mem.New())
		a, b := c.open(t), c.open(t)
		run := func(length time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), length)
			defer cancel()
			periodic.Run(ctx, a.Jobs(a.keys), slog.New(slog.DiscardHandler))
		}
		a.add(t, "ci")
		a.session(t, "ci")
		if a.nonces.table.Len() != 1 {
			t.Fatal("there is no mark")
		}
		run(auth.SecretTTL + 2*time.Minute + 2*noncePruneInterval)
		if n := a.nonces.table.Len(); n != 0 {
			t.Errorf("%d marks are left", n)
		}

		_, rev, err := a.ring.currentKeys()
		must(t, err)
		must(t, a.ring.storeRing(t.Context(), auth.NewKeyRing(time.Now().Add(keyPruneInterval/2-auth.RotationAge)),
			store.IfRev(rev)))
		key, _ := a.Keys().Get("ci")
		ended := key
		ended.Created, ended.Expires = ended.Created.Add(-auth.RotationAge),
			time.Now().Add(keyPruneInterval/2-auth.RotationAge)
		must(t, a.Keys().Replace(t.Context(), key, ended))
		run(time.Minute)
		old := b.caughtUp(t).Signer().Sign("p", nil)
		if _, ok := b.Keys().Get("ci"); !ok || ringOf(t, c) != 1 {
			t.Errorf("before its time: the key is there: %t, %d signing keys", ok, ringOf(t, c))
		}
		run(2 * keyPruneInterval)
		if _, ok := b.caughtUp(t).Keys().Get("ci"); ok || ringOf(t, c) != 2 {
			t.Errorf("in its time: the key is there: %t, %d signing keys", ok, ringOf(t, c))
		}
		text := b.Signer().Sign("p", nil)
		if _, err := a.Signer().Verify("p", old, 3*time.Hour); err != nil || text[:6] == old[:6] {
			t.Errorf("of the former signing key: %v; another one signs: %t", err, text[:6] != old[:6])
		}
	})
}

// TestFresh: a replica that is behind knows afterwards what another has acknowledged.
func TestFresh(t *testing.T) {
	c := newCluster(mem.New())
	faults := storetest.NewFaults(c.backend)
	a, b := c.open(t), (&cluster{faults, c.prefix}).open(t)
	faults.StallWatch()
	a.add(t, "ci")
	late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if b.WaitConsistent(late) == nil {
		t.Error("it says that it knows what it cannot know")
	}
	if _, err := b.keys.Get("ci"); err == nil {
		t.Fatal("the watch is not stalled")
	}
	faults.Mend()
	must(t, b.WaitConsistent(t.Context()))
	if _, err := b.keys.Get("ci"); err != nil {
		t.Error(err)
	}
}
