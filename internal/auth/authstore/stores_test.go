package authstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/authtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/backup"
	"github.com/buildyard/buildyard/internal/store/etcd"
	"github.com/buildyard/buildyard/internal/store/mem"
	"github.com/buildyard/buildyard/internal/store/storetest"
)

func TestConformance(t *testing.T) {
	onEach(t, func(t *testing.T, c *cluster) {
		t.Run("keys", func(t *testing.T) {
			authtest.Keys(t, func(t *testing.T) auth.KeyStore { return c.open(t).Keys() })
		})
		t.Run("marks", func(t *testing.T) {
			authtest.Nonces(t, func(t *testing.T) auth.NonceStore { return c.open(t).Nonces() }, authtest.Durable)
		})
		t.Run("grants", func(t *testing.T) {
			authtest.Grants(t, func(t *testing.T) auth.GrantStore { return c.open(t).Grants(farm.ServiceRegistry) },
				authtest.Durable)
		})
	})
}

// TestAnyReplica: what one replica begins another one ends, once.
func TestAnyReplica(t *testing.T) {
	onEach(t, func(t *testing.T, c *cluster) {
		a, b := c.open(t), c.open(t)
		a.add(t, "ci", "builders")
		b.caughtUp(t)
		secret := a.hand(t, "ci")
		session, err := b.shake(t, "ci", secret)
		must(t, err)
		must(t, a.verify(t, session))
		if _, err := a.shake(t, "ci", secret); farm.CodeOf(err) != farm.CodeUnauthenticated {
			t.Errorf("the secret was used on the other replica: %v", err)
		}
		for range 10 {
			if n := shakers(t, a.hand(t, "ci"), a, b); n != 1 {
				t.Fatalf("%d sessions for one secret", n)
			}
		}
	})
}

// shakers uses one secret several times concurrently, and returns the number of sessions.
func shakers(t *testing.T, secret string, replicas ...*replica) int {
	t.Helper()
	var wg sync.WaitGroup
	results := make(chan error, 3*len(replicas))
	for range 3 {
		for _, r := range replicas {
			wg.Go(func() {
				_, err := r.shake(t, "ci", secret)
				results <- err
			})
		}
	}
	wg.Wait()
	close(results)
	n := 0
	for err := range results {
		switch {
		case err == nil:
			n++
		case farm.CodeOf(err) != farm.CodeUnauthenticated && farm.CodeOf(err) != farm.CodeTooMany:
			t.Error(err)
		}
	}
	return n
}

// TestDeletionCountsEverywhere: the sessions of a key end with it, also when it is made again.
func TestDeletionCountsEverywhere(t *testing.T) {
	onEach(t, func(t *testing.T, c *cluster) {
		a, b := c.open(t), c.open(t)
		a.add(t, "ci")
		session := a.session(t, "ci")
		must(t, b.caughtUp(t).verify(t, session))
		told := make(chan string, 10)
		b.Keys().Watch(func(id string) { told <- id })
		must(t, a.keys.Delete(t.Context(), "ci"))
		if err := a.verify(t, session); err == nil {
			t.Error("the replica that deleted the key takes its session")
		}
		if err := b.caughtUp(t).verify(t, session); err == nil {
			t.Error("the other replica takes a session of a deleted key")
		}
		if id := <-told; id != "ci" {
			t.Errorf("told of %q", id)
		}
		b.add(t, "ci")
		if err := a.caughtUp(t).verify(t, session); err == nil {
			t.Error("a session of the key that was there before is taken")
		}
		must(t, a.verify(t, b.session(t, "ci")))
	})
}

// TestChangesOfOneKey: of replicas that change a key concurrently both succeed, one after the
// other.
func TestChangesOfOneKey(t *testing.T) {
	onEach(t, func(t *testing.T, c *cluster) {
		a, b := c.open(t), c.open(t)
		a.add(t, "ci")
		b.caughtUp(t)
		var wg sync.WaitGroup
		for i := range 3 {
			ttl, groups := int64(7200), []string{fmt.Sprint(i)}
			wg.Go(func() {
				if err := a.keys.Update(t.Context(), "ci", auth.APIKeyChange{TTL: &ttl}); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				if err := b.keys.Update(t.Context(), "ci", auth.APIKeyChange{Groups: &groups}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, r := range []*replica{a.caughtUp(t), b.caughtUp(t)} {
			k, err := r.keys.Get("ci")
			must(t, err)
			if len(k.Groups) != 1 || time.Until(k.Expires) < 90*time.Minute {
				t.Errorf("a change is lost: %+v", k)
			}
		}
	})
}

// TestOneRing: replicas that start together sign with the same keys.
func TestOneRing(t *testing.T) {
	onEach(t, func(t *testing.T, c *cluster) {
		replicas := make([]*replica, 4)
		var wg sync.WaitGroup
		for i := range replicas {
			wg.Go(func() { replicas[i] = c.open(t) })
		}
		wg.Wait()
		text := replicas[0].Signer().Sign("p", []byte("x"))
		for i, r := range replicas {
			if _, err := r.Signer().Verify("p", text, time.Minute); err != nil {
				t.Errorf("replica %d: %v", i, err)
			}
		}
	})
}

// ringOf returns how many signing keys a record has.
func ringOf(t *testing.T, c *cluster) (keys int) {
	t.Helper()
	var in struct {
		Ring struct{ Keys []any }
	}
	must(t, json.Unmarshal([]byte(c.records(t)["z/ring"]), &in))
	return len(in.Ring.Keys)
}

func TestRotation(t *testing.T) {
	onEach(t, func(t *testing.T, c *cluster) {
		a, b := c.open(t), c.open(t)
		must(t, a.ring.rotateKeys(t.Context()))
		must(t, b.ring.rotateKeys(t.Context())) // a moment later, and before it need have seen the first
		n := ringOf(t, c)
		if n < 2 || n > 3 {
			t.Errorf("%d keys", n)
		}
		for range 100 {
			if err := a.ring.rotateKeys(t.Context()); err != nil {
				if farm.CodeOf(err) != farm.CodeRefused {
					t.Error(err)
				}
				return
			}
		}
		t.Error("the ring grows for ever")
	})
}

// TestRotatedKeySigns: the new key signs a minute later, and every replica has it by then.
func TestRotatedKeySigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(mem.New())
		a, b := c.open(t), c.open(t)
		old := a.Signer().Sign("p", nil)
		must(t, a.ring.rotateKeys(t.Context()))
		time.Sleep(61 * time.Second)
		text := a.Signer().Sign("p", nil)
		if old[:6] == text[:6] { // the version of the key
			t.Error("the new key does not sign")
		}
		for _, r := range []*replica{a, b} {
			for _, text := range []string{old, text} {
				if _, err := r.Signer().Verify("p", text, time.Hour); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// TestConcurrentRotations: two replicas that rotate from the same state make one key.
func TestConcurrentRotations(t *testing.T) {
	onEach(t, func(t *testing.T, c *cluster) {
		a, b := c.open(t), c.open(t)
		s, rev, err := a.ring.currentKeys()
		must(t, err)
		must(t, b.ring.rotateKeys(t.Context()))
		if err := a.ring.storeRing(t.Context(), s.Ring.Rotated(time.Now()), store.IfRev(rev)); !errors.Is(err,
			store.ErrConflict) {
			t.Errorf("a rotation of a ring that was rotated: %v", err)
		}
		if n := ringOf(t, c); n != 2 {
			t.Errorf("%d keys", n)
		}
	})
}

// TestLateReplica: one that has not seen a change yet writes over nothing.
func TestLateReplica(t *testing.T) {
	c := newCluster(mem.New())
	faults := storetest.NewFaults(c.backend)
	a, b := c.open(t), (&cluster{faults, c.prefix}).open(t)
	a.add(t, "ci")
	old, _ := b.caughtUp(t).Keys().Get("ci")
	faults.StallWatch()
	groups := []string{"new"}
	must(t, a.keys.Update(t.Context(), "ci", auth.APIKeyChange{Groups: &groups}))
	must(t, a.ring.rotateKeys(t.Context()))
	before := c.records(t)
	for name, do := range map[string]func(context.Context) error{
		"delete":  func(ctx context.Context) error { return b.Keys().Delete(ctx, old) },
		"replace": func(ctx context.Context) error { return b.Keys().Replace(ctx, old, old) },
		"rotate":  b.ring.rotateKeys,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if err := do(ctx); err == nil {
			t.Errorf("%s: no error", name)
		}
		cancel()
	}
	after := c.records(t)
	if before["y/ci"] != after["y/ci"] || before["z/ring"] != after["z/ring"] {
		t.Error("a replica that is late has changed what it does not know")
	}
	faults.Mend()
	if err := b.Keys().Delete(t.Context(), old); !errors.Is(err, auth.ErrKeyChanged) {
		t.Error(err)
	}
	must(t, b.keys.Delete(t.Context(), "ci"))
}

// TestSecretsStayHidden: signing keys are in the backend and nowhere else.
func TestSecretsStayHidden(t *testing.T) {
	c := newCluster(mem.New())
	var out bytes.Buffer
	var mu sync.Mutex
	log := slog.New(slog.NewJSONHandler(lockedWriter{&mu, &out}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r, err := c.tryOpen(t, log)
	must(t, err)
	r.st.Subscribe(func(events []store.Event) {
		for _, ev := range events {
			log.Info("event", "all", fmt.Sprintf("%+v %#v", ev, ev), "new", ev.New, "record", ev)
		}
	})
	must(t, r.ring.rotateKeys(t.Context()))
	row, _, _ := r.ring.table.Get(ringID)
	change := store.Put(r.ring.table, ringID, row, store.Any)
	log.Info("row", "row", row, "value", row.Value, "text",
		fmt.Sprintf("%+v %#v %v %s", row, *row, row.Value, row.Value.Ring), "change", change.Value())
	raw, err := json.Marshal(row)
	must(t, err)
	log.Info("json", "row", string(raw))
	c.write(t, "z/ring", c.records(t)["z/ring"][1:]) // no JSON any more
	r.caughtUp(t)
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(out.String(), "***") || !strings.Contains(out.String(), "stay in use") {
		t.Errorf("nothing was logged: %s", out.String())
	}
	var in struct {
		Ring struct{ Keys []storedKey }
	}
	good, err := encodeSigning(row.Value)
	must(t, err)
	must(t, json.Unmarshal(good, &in))
	for _, k := range in.Ring.Keys {
		text, _ := json.Marshal(k.Secret)
		for _, form := range []string{strings.Trim(string(text), `"`), fmt.Sprint(k.Secret), fmt.Sprintf("%x",
			k.Secret), string(k.Secret)} {
			if strings.Contains(out.String(), form) {
				t.Errorf("a signing key was shown as %.10s...", form)
			}
		}
	}
}

type storedKey struct{ Secret []byte }

type lockedWriter struct {
	mu *sync.Mutex
	to *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// TestRestore: after a backup was restored nothing counts that was signed before, so that no
// used secret is good again; keys and permissions are those of the backup.
func TestRestore(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "b.backup")
	start := func() (*replica, func()) {
		b, err := etcd.StartEmbedded(t.Context(), etcd.EmbeddedOptions{Dir: dir})
		must(t, err)
		tables := NewTables()
		st, err := store.Open(t.Context(), b, store.Options{Tables: tables.All()})
		must(t, err)
		s, err := Open(t.Context(), st, tables, slog.New(slog.DiscardHandler))
		must(t, err)
		return newReplica(s, st), func() { must(t, errors.Join(st.Close(), b.Close())) }
	}
	r, stop := start()
	r.add(t, "ci")
	before := r.session(t, "ci")
	secret := r.hand(t, "ci")
	stream, _, err := r.st.Snapshot(t.Context())
	must(t, err)
	_, err = backup.WriteFile(file, stream, backup.KeepExisting)
	must(t, errors.Join(err, stream.Close()))
	after, err := r.shake(t, "ci", secret) // the backup does not have this mark
	must(t, err)
	stop()
	r, stop = start()
	must(t, r.verify(t, before)) // a restart ends nothing
	stop()
	_, err = etcd.Restore(t.Context(),
		etcd.RestoreOptions{BackupFile: file, Dir: dir, Existing: etcd.MoveExistingAside})
	must(t, err)
	r, stop = start()
	if _, err := r.shake(t, "ci", secret); farm.CodeOf(err) != farm.CodeUnauthenticated {
		t.Errorf("a used secret is good again: %v", err)
	}
	if r.verify(t, before) == nil || r.verify(t, after) == nil {
		t.Error("a session of before the restore counts")
	}
	session := r.session(t, "ci")
	stop()
	r, stop = start()
	must(t, r.verify(t, session)) // it was made again once
	stop()
}

// TestRestoredBelow: what Sweep does when the records below running replicas are of another
// life.
func TestRestoredBelow(t *testing.T) {
	c := newCluster(mem.New())
	a, b := c.open(t), c.open(t)
	a.add(t, "ci")
	session := a.session(t, "ci")
	c.write(t, "meta/epoch", `{"epoch":"another"}`)
	a.caughtUp(t)
	b.caughtUp(t)
	var wg sync.WaitGroup
	for _, r := range []*replica{a, b} {
		wg.Go(func() {
			if _, err := r.PruneExpired(t.Context(), time.Now()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if a.caughtUp(t).verify(t, session) == nil || b.caughtUp(t).verify(t, session) == nil {
		t.Error("a session of another life counts")
	}
	must(t, a.verify(t, b.session(t, "ci")))
}

// TestLateAnswers: the result of a call is right, whatever happens to the connection to the
// backend.
func TestLateAnswers(t *testing.T) {
	c, faults := faulty()
	r := c.open(t)
	use := func(n byte) (bool, error) { return r.Nonces().Use(t.Context(), auth.Nonce{n}, soon()) }
	faults.Next(loseReply)
	if first, err := use(1); !first || err != nil {
		t.Errorf("the answer was lost: %t, %v", first, err)
	}
	if first, err := use(1); first || err != nil {
		t.Errorf("its second use: %t, %v", first, err)
	}
	faults.Next(refuse)
	if first, err := use(2); first || farm.CodeOf(err) != farm.CodeUnavailable {
		t.Errorf("the request was refused: %t, %v", first, err)
	}
	faults.HoldCommits()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if first, err := r.Nonces().Use(ctx, auth.Nonce{3}, soon()); first || err == nil {
		t.Errorf("no answer in time: %t, %v", first, err)
	}
	if err := r.Keys().Create(ctx, authtest.Key("late")); err == nil {
		t.Error("a key is promised that was not stored")
	}
	faults.Mend()
	if first, err := use(4); !first || err != nil {
		t.Errorf("afterwards: %t, %v", first, err)
	}
}
