package storeadmin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

var errKilled = errors.New("killed")

// killed is a backend that fails from some commit on, as for a process that was killed there.
type killed struct {
	store.Backend
	commitsLeft *int
}

func (k killed) Commit(ctx context.Context, txn store.Txn) (int64, error) {
	if *k.commitsLeft == 0 {
		return 0, fmt.Errorf("%w: %w", store.ErrInvalid, errKilled) // not tried again
	}
	*k.commitsLeft--
	return k.Backend.Commit(ctx, txn)
}

// noSettle does not wait.
func noSettle() Options { return Options{Settle: func(context.Context) error { return nil }} }

// filled returns a store that a controller has written, with n records.
func filled(t *testing.T, n int) store.Backend {
	t.Helper()
	b := mem.New()
	s, err := store.Open(t.Context(), b, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		put(t, b, fmt.Sprintf("/buildyard/v1/i/%03d", i), strings.Repeat("x", 10_000)+fmt.Sprint(i))
	}
	return b
}

func put(t *testing.T, b store.Backend, key, value string) {
	t.Helper()
	if _, err := b.Commit(t.Context(), store.Txn{Puts: []store.KV{{Key: key, Value: []byte(value)}}}); err != nil {
		t.Fatal(err)
	}
}

// records returns the records of a backend, without those about the store itself.
func records(t *testing.T, b store.Backend) map[string]string {
	t.Helper()
	all := map[string]string{}
	if _, err := b.List(t.Context(), "/buildyard/v1/", func(page []store.KV) error {
		for _, kv := range page {
			if !store.IsMetaKey("", kv.Key) {
				all[kv.Key] = string(kv.Value)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func wantSame(t *testing.T, got, want store.Backend) {
	t.Helper()
	have, wanted := records(t, got), records(t, want)
	if len(have) != len(wanted) {
		t.Errorf("%d records, want %d", len(have), len(wanted))
	}
	for key, value := range wanted {
		if have[key] != value {
			t.Errorf("record %s differs", key)
		}
	}
}

// opens reports whether a controller would open the store.
func opens(t *testing.T, b store.Backend) error {
	t.Helper()
	s, err := store.Open(t.Context(), b, store.Options{})
	if err != nil {
		return err
	}
	return s.Close()
}

// TestMigrateKilledAtEveryCommit: at every moment at most one of the two stores opens, none does while
// the copy is incomplete, and the same command again completes it.
func TestMigrateKilledAtEveryCommit(t *testing.T) {
	const n = 250
	for at := 0; ; at++ {
		from, to := filled(t, n), store.Backend(mem.New())
		put(t, to, "/other/key", "of another program")
		left := at
		source := Side{killed{from, &left}, "", "here"}
		target := Side{killed{to, &left}, "", "there"}
		_, err := Migrate(t.Context(), source, target, noSettle())
		finished := err == nil
		if !finished && !errors.Is(err, errKilled) {
			t.Fatalf("killed at commit %d: %v", at, err)
		}
		checkHalfway(t, from, to, at)

		done, err := Migrate(t.Context(), Side{from, "", "here"}, Side{to, "", "there"}, noSettle())
		if finished {
			if err == nil || !strings.Contains(err.Error(), "moved to there") {
				t.Errorf("a second migration after %d commits: %v", at, err)
			}
			wantSame(t, to, from)
			return
		}
		if err != nil || done.Records != n || done.Epoch == "" {
			t.Fatalf("again after commit %d: %+v, %v", at, done, err)
		}
		wantSame(t, to, from)
		if err := opens(t, from); !errors.Is(err, store.ErrClosedForTransfer) {
			t.Errorf("the source opens: %v", err)
		}
		if err := opens(t, to); err != nil {
			t.Errorf("the target does not open: %v", err)
		}
		if kv, err := to.Get(t.Context(), "/other/key"); err != nil || kv.ModRev == 0 {
			t.Errorf("the key of another program: %+v, %v", kv, err)
		}
	}
}

// checkHalfway: a controller opens at most one of the stores, and only one that is complete.
func checkHalfway(t *testing.T, from, to store.Backend, at int) {
	t.Helper()
	ctx := t.Context()
	source, err := store.ReadSchema(ctx, from, "")
	if err != nil {
		t.Fatal(err)
	}
	target, err := store.ReadSchema(ctx, to, "")
	if err != nil {
		t.Fatal(err)
	}
	isOpen := target.Exists() && target.Err() == nil
	if isOpen && source.Err() == nil {
		t.Errorf("killed at commit %d: both stores are open", at)
	}
	if isOpen {
		wantSame(t, to, from)
	}
	if !target.Exists() && len(records(t, to)) > 0 {
		t.Errorf("killed at commit %d: records in a store that looks empty", at)
	}
}

// TestCancel: an incomplete migration is undone at every moment, a complete one is not.
func TestCancel(t *testing.T) {
	const n = 250
	for at := 1; ; at++ {
		from, to := filled(t, n), store.Backend(mem.New())
		here, there := Side{from, "", "here"}, Side{to, "", "there"}
		left := at
		_, err := Migrate(t.Context(), Side{killed{from, &left}, "", "here"}, Side{killed{to, &left}, "", "there"},
			noSettle())
		target, schemaErr := store.ReadSchema(t.Context(), to, "")
		if schemaErr != nil {
			t.Fatal(schemaErr)
		}
		isOpen := target.Exists() && target.Err() == nil
		cancelErr := Cancel(t.Context(), here, there, noSettle())
		if isOpen {
			if cancelErr == nil {
				t.Errorf("commit %d: a complete copy was undone", at)
			}
		} else {
			if cancelErr != nil {
				t.Fatalf("commit %d: %v", at, cancelErr)
			}
			if err := opens(t, from); err != nil || len(records(t, from)) != n {
				t.Errorf("commit %d: the source does not open: %v", at, err)
			}
			if left := len(records(t, to)); left > 0 {
				t.Errorf("commit %d: %d records left behind", at, left)
			}
			if err := opens(t, to); err != nil {
				t.Errorf("commit %d: the target cannot be used: %v", at, err)
			}
		}
		if err == nil {
			return
		}
	}
}

// TestCancelWithAnotherName: the order of endpoints does not matter; with another peer nothing is opened.
func TestCancelWithAnotherName(t *testing.T) {
	const cluster, reordered = "etcd at https://a:1, https://b:1", "etcd at https://b:1, https://a:1"
	from, to := filled(t, 10), store.Backend(mem.New())
	left := 2 // both sides are closed
	if _, err := Migrate(t.Context(), Side{killed{from, &left}, "", "here"}, Side{killed{to, &left}, "", cluster},
		noSettle()); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}

	err := Cancel(t.Context(), Side{from, "", "moved"}, Side{to, "", cluster}, noSettle())
	if err == nil || !strings.Contains(err.Error(), "a migration from here, not from moved") {
		t.Errorf("another name of the source: %v", err)
	}
	if err := Cancel(t.Context(), Side{from, "", "here"}, Side{to, "", cluster + ", c"}, noSettle()); err == nil {
		t.Error("canceled with another target")
	}
	if err := opens(t, from); !errors.Is(err, store.ErrClosedForTransfer) {
		t.Errorf("the source opens: %v", err)
	}

	if err := Cancel(t.Context(), Side{from, "", "here"}, Side{to, "", reordered}, noSettle()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(opens(t, from), opens(t, to)); err != nil {
		t.Error(err)
	}
}

// TestMigrateRefuses: what must not be copied, or be copied into, is left as it is.
func TestMigrateRefuses(t *testing.T) {
	ctx := t.Context()
	empty := func() store.Backend { return mem.New() }
	one := func() store.Backend { return filled(t, 1) }
	for name, tc := range map[string]struct {
		from, to func() store.Backend
		want     string
	}{
		"nothing to copy":    {empty, empty, "no Buildyard records"},
		"a target in use":    {one, func() store.Backend { return filled(t, 2) }, "already has"},
		"a controller runs":  {func() store.Backend { return held(t, filled(t, 1)) }, empty, "stop all of them"},
		"one runs at target": {one, func() store.Backend { return held(t, empty()) }, "stop all of them"},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := tc.from(), tc.to()
			before := len(records(t, to))
			_, err := Migrate(ctx, Side{from, "", "here"}, Side{to, "", "there"}, noSettle())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if schema, err := store.ReadSchema(ctx, from, ""); err != nil || schema.Transfer() != nil {
				t.Errorf("the source was closed: %v, %v", schema.Transfer(), err)
			}
			if after := len(records(t, to)); after != before {
				t.Errorf("the target has %d records, had %d", after, before)
			}
		})
	}
}

// held returns a backend on which a controller holds a lease.
func held(t *testing.T, b store.Backend) store.Backend {
	t.Helper()
	if _, err := b.Campaign(t.Context(), "/buildyard/lease/leader"); err != nil {
		t.Fatal(err)
	}
	return b
}

// changing is a source of which a record changes whenever it has been listed.
type changing struct {
	store.Backend
	lists *int
	most  int // changes
}

func (c changing) List(ctx context.Context, prefix string, fn func([]store.KV) error) (int64, error) {
	rev, err := c.Backend.List(ctx, prefix, fn)
	if err == nil && strings.HasSuffix(prefix, "/v1/") && *c.lists < c.most {
		*c.lists++
		late := store.KV{Key: "/buildyard/v1/i/late", Value: fmt.Append(nil, *c.lists)}
		_, err = c.Commit(ctx, store.Txn{Puts: []store.KV{late}})
	}
	return rev, err
}

// TestLateCommits: a commit that was under way when the source was closed is copied, too.
func TestLateCommits(t *testing.T) {
	lists, to := 0, mem.New()
	from := changing{filled(t, 3), &lists, 2}
	if _, err := Migrate(t.Context(), Side{from, "", "here"}, Side{to, "", "there"}, noSettle()); err != nil {
		t.Fatal(err)
	}
	if got := records(t, to)["/buildyard/v1/i/late"]; got != "2" {
		t.Errorf("the late record is %q", got)
	}

	lists = 0
	from = changing{filled(t, 3), &lists, 1000}
	if _, err := Migrate(t.Context(), Side{from, "", "here"}, Side{mem.New(), "", "there"}, noSettle()); !errors.Is(err,
		errChanging) {
		t.Errorf("a source that never rests: %v", err)
	}
}

// TestRestore: records that the target has are replaced only if that is wanted, after a backup of them;
// a restore that was interrupted is completed with the same or another backup.
func TestRestore(t *testing.T) {
	ctx := t.Context()
	source, to := Side{filled(t, 120), "", "backup a"}, filled(t, 5)
	put(t, to, "/buildyard/v1/i/extra", "only here")
	target := Side{to, "", "etcd"}
	if _, err := Restore(ctx, source, target, RefuseExisting, noSettle()); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("over records: %v", err)
	}
	if len(records(t, to)) != 6 {
		t.Error("a refused restore changed records")
	}
	opts := noSettle()
	opts.Backup = func(context.Context, Side) (string, error) { return "aside", nil }
	left := 1
	dying := Side{killed{to, &left}, "", "etcd"}
	if _, err := Restore(ctx, source, dying, ReplaceExisting, opts); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	if err := opens(t, to); !errors.Is(err, store.ErrClosedForTransfer) {
		t.Errorf("a half restored store opens: %v", err)
	}
	done, err := Restore(ctx, source, target, RefuseExisting, noSettle()) // nothing is left to be replaced
	if err != nil || done.Records != 120 {
		t.Errorf("again: %+v, %v", done, err)
	}
	wantSame(t, to, source.Backend)
	if err := opens(t, to); err != nil {
		t.Error(err)
	}
	before, err := store.ReadEpoch(ctx, to, "")
	if err != nil {
		t.Fatal(err)
	}
	if done, err = Restore(ctx, source, target, ReplaceExisting, opts); err != nil || done.Replaced != "aside" ||
		done.Epoch == before || done.Written != 0 {
		t.Errorf("the same again: %+v, %v", done, err)
	}
}

// TestTakenOver: of two processes that copy, only the one that began last writes.
func TestTakenOver(t *testing.T) {
	ctx, to := t.Context(), mem.New()
	from, target := Side{filled(t, 5), "", "here"}, Side{to, "", "there"}
	opts := noSettle().withDefaults()
	closed, err := closeForCopy(ctx, target, store.Schema{}, "here", opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := closeForCopy(ctx, target, closed, "here", opts); err != nil {
		t.Fatal(err)
	}
	if _, err := copyAndOpen(ctx, copySides{from, target}, closed, "", opts); !errors.Is(err, errTakenOver) {
		t.Errorf("the first process wrote: %v", err)
	}
}

// unknowing reports an unknown outcome for a while.
type unknowing struct {
	store.Backend
	times *int
}

func (u unknowing) Commit(ctx context.Context, txn store.Txn) (int64, error) {
	rev, err := u.Backend.Commit(ctx, txn)
	if *u.times > 0 && len(txn.Puts) > 2 {
		*u.times--
		return 0, store.ErrUnknownOutcome
	}
	return rev, err
}

// TestUnknownOutcome: a batch whose outcome is unknown is written again.
func TestUnknownOutcome(t *testing.T) {
	times, to := 3, mem.New()
	from := Side{filled(t, 50), "", "here"}
	target := Side{unknowing{to, &times}, "", "there"}
	if _, err := Migrate(t.Context(), from, target, noSettle()); err != nil || times != 0 {
		t.Errorf("%v, %d left", err, times)
	}
	wantSame(t, to, from.Backend)
}

// TestSettleEnds: the wait ends with its context.
func TestSettleEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := sleep(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
