package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/buildyard/buildyard/internal/store"
)

type blob struct {
	N    int
	Body []byte
}

// openSmall opens an embedded store with a small quota.
func openSmall(
	t *testing.T, dir string, quota int64, expendable bool,
) (*Backend, *store.Store, *store.Table[blob], *store.Table[blob]) {
	t.Helper()
	b, err := StartEmbedded(t.Context(), EmbeddedOptions{
		Dir: dir, Logger: testLogger(t), QuotaBytes: quota, minShrinkBytes: 4 << 20,
		recoveryPause: 500 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	live, old := store.NewTable[blob]("live"), store.NewTable[blob]("old")
	opts := store.Options{Tables: []store.AnyTable{live, old}, Logger: testLogger(t)}
	if expendable {
		opts.Expendable = old
	}
	s, err := store.Open(t.Context(), b, opts)
	if err != nil {
		t.Fatal(errors.Join(err, b.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	return b, s, live, old
}

func body(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.Read(data)
	return data
}

// TestFullStoreRecovers fills a store by rewriting few records from many goroutines. It must
// refuse, recover automatically, and contain exactly what it acknowledged.
func TestFullStoreRecovers(t *testing.T) {
	const writers, quota = 8, 24 << 20
	b, s, live, _ := openSmall(t, t.TempDir(), quota, false)
	var refusals, after atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(90 * time.Second)
	for w := range writers {
		wg.Go(func() {
			acked, id := 0, fmt.Sprint(w)
			for n := 1; time.Now().Before(end) && after.Load() < 200; n++ {
				err := s.Commit(t.Context(), store.Put(live, id, &blob{n, body(64 << 10)}, store.Any))
				switch {
				case err == nil:
					acked = n
					if refusals.Load() > 0 {
						after.Add(1)
					}
				case errors.Is(err, store.ErrUnavailable):
					if strings.Contains(err.Error(), fullMessage) {
						refusals.Add(1)
					} else if !strings.Contains(err.Error(), shrinkingMessage) { // on a slow disk
						t.Errorf("a refusal says %q", err)
					}
					if got, _, err := live.GetLinearizable(t.Context(), id); err == nil &&
						(got == nil && acked > 0 || got != nil && got.N != acked) {
						t.Errorf("record %s: %d was acknowledged last, then %d refused; it is %d now", id, acked, n,
							got.N)
					}
					time.Sleep(20 * time.Millisecond)
				default:
					t.Errorf("a write ended in %v", err)
				}
			}
			if got, _, err := live.GetLinearizable(t.Context(), id); err != nil || got == nil || got.N != acked {
				t.Errorf("record %s was acknowledged as %d and is %v, %v", id, acked, got, err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d refusals, %d writes since", refusals.Load(), after.Load())
	if refusals.Load() == 0 || after.Load() < 200 {
		t.Errorf("%d refusals, %d writes after the first one: the store did not fill up and recover", refusals.Load(),
			after.Load())
	}
	eventually(t, "a healthy store below its quota", func() bool {
		got, err := b.memberStatus(t.Context(), "")
		return err == nil && !got.noSpace && got.fileBytes < quota && s.Healthy() == nil
	})
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if so() {
			return
		}
	}
	t.Errorf("waited too long for %s", what)
}

// newestFirst returns an id of a record so that ids sort with the newest first.
func newestFirst(n int) string { return fmt.Sprintf("%06d", 999_999-n) }

// TestFullOfHistory: when too much is in use, the oldest expendable records are deleted, and
// nothing else is.
func TestFullOfHistory(t *testing.T) {
	const quota = 12 << 20
	dir := t.TempDir()
	_, s, live, old := openSmall(t, dir, quota, true)
	for n := range 16 {
		if err := s.Commit(t.Context(),
			store.Put(live, fmt.Sprint(n), &blob{n, body(4 << 10)}, store.Any)); err != nil {
			t.Fatal(err)
		}
	}
	last := 0
	const enough = 1000 // records, more than fit
	for n, refused := 1, 0; n < enough+200 && refused < 1000; n++ {
		err := s.Commit(t.Context(), store.Put(old, newestFirst(n), &blob{n, body(16 << 10)}, store.Any))
		if err != nil {
			refused++
			time.Sleep(20 * time.Millisecond)
			continue
		}
		last = n
		if refused > 0 && n > enough {
			break
		}
	}
	if old.Len() == 0 || live.Len() != 16 {
		t.Errorf("%d old and %d live records are left", old.Len(), live.Len())
	}
	if _, _, ok := old.Get(newestFirst(1)); ok {
		t.Error("the oldest record is still there: the store never made room")
	}
	if _, _, ok := old.Get(newestFirst(last)); !ok {
		t.Error("the newest old record is gone")
	}
	t.Logf("%d old records of %d are left", old.Len(), last)
}

// TestStillFull: nothing may be deleted, so the store stays full, reports that, and serves reads.
func TestStillFull(t *testing.T) {
	b, s, live, _ := openSmall(t, t.TempDir(), 8<<20, false)
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		err = s.Commit(t.Context(), store.Put(live, fmt.Sprint(n), &blob{n, body(64 << 10)}, store.Any))
	}
	if !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("after %d records: %v", n, err)
	}
	eventually(t, "the store to say that it is full", func() bool { // it may have freed space once more
		if s.Commit(t.Context(), store.Put(live, fmt.Sprint(n), &blob{n, body(64 << 10)}, store.Any)) == nil {
			n++
		}
		err := s.Healthy()
		return err != nil && strings.Contains(err.Error(), fullMessage)
	})
	if got, _, err := live.GetLinearizable(t.Context(), "0"); err != nil || got == nil {
		t.Errorf("a full store does not answer: %v", err)
	}
	// The operator deletes records: a transaction with the committer's key is refused too, so this
	// is for etcd's own tools.
	var keys []string
	for id := range live.All() {
		keys = append(keys, store.DefaultPrefix+"/v1/live/"+id)
	}
	if _, err := b.maintainer.deleteKeys(t.Context(), keys[:len(keys)/2]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "writes to be taken again", func() bool {
		return s.Commit(t.Context(), store.Put(live, "0", &blob{}, store.Any)) == nil
	})
}

// fragments is how many records fragment writes; it leaves the last ten.
const (
	fragments     = 50
	fragmentBytes = fragments * 256 << 10
)

// fragment leaves a store whose file is mostly empty.
func fragment(t *testing.T, b *Backend, s *store.Store, live *store.Table[blob]) {
	t.Helper()
	for n := range fragments {
		if err := s.Commit(t.Context(),
			store.Put(live, fmt.Sprint(n), &blob{n, body(256 << 10)}, store.Any)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range fragments - 10 {
		if err := s.Commit(t.Context(), store.Delete(live, fmt.Sprint(n), store.Any)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestFileIsMadeSmaller: the file shrinks while the store serves; nothing is lost, and no write
// fails.
func TestFileIsMadeSmaller(t *testing.T) {
	b, s, live, _ := openSmall(t, t.TempDir(), 1<<30, false)
	fragment(t, b, s, live)
	eventually(t, "everything to be in the file, which etcd does a moment later", func() bool {
		before, err := b.memberStatus(t.Context(), "")
		return err == nil && before.fileBytes > fragmentBytes
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := s.Commit(t.Context(),
					store.Put(live, fmt.Sprintf("w%d", w), &blob{N: n}, store.Any)); err != nil {
					t.Errorf("a write beside the defragmentation: %v", err)
				}
			}
		})
	}
	eventually(t, "the file to be smaller", func() bool {
		if err := b.maintainer.compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.maintainer.notifyFull() // it need not wait for its next check
		after, err := b.memberStatus(t.Context(), "")
		return err == nil && after.fileBytes < fragmentBytes/2
	})
	cancel()
	wg.Wait()
	for n := fragments - 10; n < fragments; n++ {
		if got, _, err := live.GetLinearizable(t.Context(), fmt.Sprint(n)); err != nil || got == nil ||
			len(got.Body) != 256<<10 {
			t.Errorf("record %d: %v %v", n, got, err)
		}
	}
}

// TestFileIsMadeSmallerAtTheStart: the file shrinks before the backend is returned.
func TestFileIsMadeSmallerAtTheStart(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir) // its limit is far above what the test writes
	live := store.NewTable[blob]("live")
	s, err := store.Open(t.Context(), b, store.Options{Tables: []store.AnyTable{live}})
	if err != nil {
		t.Fatal(err)
	}
	fragment(t, b, s, live)
	if err := b.maintainer.compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	b, _, live, _ = openSmall(t, dir, 1<<30, false)
	after, err := b.memberStatus(t.Context(), "")
	if err != nil || after.fileBytes > fragmentBytes/2 {
		t.Errorf("the file has %d bytes, and %d were written (%v)", after.fileBytes, fragmentBytes, err)
	}
	if live.Len() != 10 {
		t.Errorf("%d records", live.Len())
	}
}

// TestCallsWaitForTheFile: calls wait while the file is rewritten, and a call whose deadline passes
// returns the reason; nothing of it was sent.
func TestCallsWaitForTheFile(t *testing.T) {
	b := open(t, t.TempDir())
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	begun, finish := make(chan struct{}), make(chan struct{})
	b.defragMember = func(context.Context, string) error {
		close(begun)
		<-finish
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- b.maintainer.defrag(t.Context(), "") }()
	<-begun
	if busy := b.BlockedReason(); busy != shrinkingMessage {
		t.Errorf("busy: %q", busy)
	}
	for name, call := range map[string]func(context.Context) error{
		"commit": func(ctx context.Context) error {
			_, err := b.Commit(ctx, store.Txn{Puts: []store.KV{{Key: "/x"}}})
			return err
		},
		"get":     func(ctx context.Context) error { _, err := b.Get(ctx, "/x"); return err },
		"barrier": func(ctx context.Context) error { _, err := b.Barrier(ctx); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := call(ctx); !errors.Is(err, store.ErrUnavailable) ||
			!strings.Contains(err.Error(), shrinkingMessage) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	patient := make(chan error, 1)
	go func() {
		_, err := b.Commit(t.Context(), store.Txn{Puts: []store.KV{{Key: "/y"}}})
		patient <- err
	}()
	close(finish)
	if err := errors.Join(<-done, <-patient); err != nil || b.BlockedReason() != "" {
		t.Errorf("%v, busy: %q", err, b.BlockedReason())
	}
	if kv, err := b.Get(t.Context(), "/x"); err != nil || kv.ModRev != 0 {
		t.Errorf("what was refused is there: %v %v", kv, err)
	}
}

// TestCompactionSparesWatches: a watch that is behind gets everything in spite of a compaction.
func TestCompactionSparesWatches(t *testing.T) {
	b := open(t, t.TempDir())
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	from, err := b.Barrier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held, let, seen := make(chan struct{}), make(chan struct{}), make(chan int64, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- b.Watch(ctx, "/w/", from+1, func(batch store.WatchBatch) error {
			if len(batch.Events) == 0 {
				return nil
			}
			if batch.Rev == from+1 {
				close(held)
				<-let
			}
			seen <- batch.Rev
			return nil
		})
	}()
	put := func() {
		if _, err := b.Commit(t.Context(), store.Txn{Puts: []store.KV{{Key: "/w/a"}}}); err != nil {
			t.Error(err)
		}
	}
	put()
	<-held
	for range 20 {
		put()
	}
	if err := b.maintainer.compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(let)
	for want := from + 1; want <= from+21; want++ {
		select {
		case got := <-seen:
			if got != want {
				t.Errorf("revision %d, want %d", got, want)
			}
		case err := <-ended:
			t.Fatalf("the watch ended: %v", err)
		}
	}
	cancel()
	<-ended
}

// TestOneReplicaCompactsPerPeriod: of two replicas on a cluster one compacts in each period, and
// revisions younger than a period stay.
func TestOneReplicaCompactsPerPeriod(t *testing.T) {
	endpoint := serve(t)
	var replicas [2]*Backend
	for i := range replicas {
		var err error
		if replicas[i], err = ConnectExternal(t.Context(), ExternalOptions{Endpoints: []string{endpoint}}); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = replicas[i].Close() }()
	}
	var seen [2]int64
	note := func() int64 {
		kv, err := replicas[0].Get(t.Context(), store.DefaultPrefix+"/compact")
		if err != nil {
			t.Fatal(err)
		}
		return kv.ModRev
	}
	eventually(t, "the first note", func() bool { return note() > 0 })
	var before, revs []int64
	for period := range 4 {
		rev, err := replicas[0].Commit(t.Context(), store.Txn{Puts: []store.KV{{Key: store.DefaultPrefix + "/x"}}})
		if err != nil {
			t.Fatal(err)
		}
		before, revs = append(before, note()), append(revs, rev)
		for i, b := range replicas {
			if seen[i], err = b.maintainer.tryCompactTurn(t.Context(), seen[i]); err != nil {
				t.Fatal(err)
			}
		}
		if now := note(); (now != before[period]) != (period > 0) {
			t.Errorf("period %d: the note was written at %d, before at %d", period, now, before[period])
		}
	}
	_, err := replicas[1].client.Get(t.Context(), "/", clientv3.WithRev(revs[1]))
	if err == nil {
		t.Error("a revision of two periods ago was kept")
	}
	if _, err := replicas[1].client.Get(t.Context(), "/", clientv3.WithRev(revs[3])); err != nil {
		t.Errorf("a revision of this period is gone: %v", err)
	}
}
