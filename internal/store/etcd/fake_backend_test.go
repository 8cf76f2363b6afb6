package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// fullSizes are of a member that is full and has much that can be deleted.
var fullSizes = memberStatus{fileBytes: 100, usedBytes: 80, quotaBytes: 100, noSpace: true, isLeader: true}

// fakeWork has the operations of a backend on a cluster, and their calls.
var fakeWork = map[string]struct {
	prepare func(f *fakeCluster, b *Backend)
	do      func(ctx context.Context, b *Backend) error
	calls   []string
	without []int // calls whose member is left out when it does not answer, since others do
}{
	"commit": {
		do:    func(ctx context.Context, b *Backend) error { _, err := b.Commit(ctx, aPut); return err },
		calls: []string{"put"},
	},
	"get": {
		do:    func(ctx context.Context, b *Backend) error { _, err := b.Get(ctx, "/k"); return err },
		calls: []string{"get /k"},
	},
	"list": {
		prepare: func(f *fakeCluster, _ *Backend) { f.more, f.kvs["/k"] = 1, &mvccpb.KeyValue{Key: []byte("/k")} },
		do: func(ctx context.Context, b *Backend) error {
			_, err := b.List(ctx, "/k", func([]store.KV) error { return nil })
			return err
		},
		calls: []string{"get /k", "get /k\x00 at 7"},
	},
	"barrier": {
		do:    func(ctx context.Context, b *Backend) error { _, err := b.Barrier(ctx); return err },
		calls: []string{"get /p/probe"},
	},
	"barrier for a watch": {
		prepare: func(_ *fakeCluster, b *Backend) { b.watches.add(fakeRev) },
		do:      func(ctx context.Context, b *Backend) error { _, err := b.Barrier(ctx); return err },
		calls:   []string{"get /p/probe", "progress"},
	},
	"snapshot": {
		do: func(ctx context.Context, b *Backend) error {
			stream, size, err := b.Snapshot(ctx)
			if err != nil {
				return err
			}
			if size != 100 {
				return fmt.Errorf("a size of %d", size)
			}
			return stream.Close()
		},
		calls: []string{"status a", "snapshot", "close"},
	},
	"revoke all": {
		prepare: func(f *fakeCluster, _ *Backend) { f.leases = []clientv3.LeaseStatus{{ID: 1}, {ID: 2}} },
		do:      func(ctx context.Context, b *Backend) error { return b.revokeAll(ctx) },
		calls:   []string{"leases", "revoke 1", "revoke 2"},
	},
	"compact at half": {
		prepare: func(f *fakeCluster, _ *Backend) {
			f.sizes["a"] = memberStatus{fileBytes: 50, usedBytes: 40, quotaBytes: 100}
		},
		do:    func(ctx context.Context, b *Backend) error { return b.maintainer.maintain(ctx) },
		calls: []string{"status a", "get /p/probe", "compact 7"},
	},
	"rewrite the file": {
		prepare: func(f *fakeCluster, b *Backend) {
			f.sizes["a"], b.ownsFile, b.maintainer.minShrinkBytes = memberStatus{
				fileBytes: 49, usedBytes: 9, quotaBytes: 100,
			}, true, 39
		},
		do:    func(ctx context.Context, b *Backend) error { return b.maintainer.maintain(ctx) },
		calls: []string{"status a", "status a", "defrag a", "status a"},
	},
	"recover": {
		prepare: func(f *fakeCluster, _ *Backend) {
			f.alarms = []*etcdserverpb.AlarmMember{
				{MemberID: 1, Alarm: etcdserverpb.AlarmType_CORRUPT},
				{MemberID: 2, Alarm: noSpaceAlarm},
				{MemberID: 3, Alarm: noSpaceAlarm},
			}
			f.sizes["b"], f.sizes["c"] = f.sizes["a"], f.sizes["a"]
			f.sizes["a"] = fullSizes
		},
		do: func(ctx context.Context, b *Backend) error {
			b.memberAddrs = []string{"a", "b", "c"} // a leads
			return b.maintainer.maintain(ctx)
		},
		calls: []string{
			// b and c make room before the leader
			"status a", "status b", "status c", "get /p/probe", "compact 7", "status a", "status b", "status c",
			"status b", "defrag b", "status b", "status c", "defrag c", "status c", "status a", "defrag a", "status a",
			"status a", "status b", "status c", "alarms", "disarm NOSPACE of 2", "disarm NOSPACE of 3",
		},
		without: []int{0, 1, 2, 5, 6, 7, 17, 18, 19},
	},
	"shed": {
		prepare: func(f *fakeCluster, b *Backend) {
			f.sizes["a"] = fullSizes
			b.SetExpendable(func(n int) []string { return make([]string, min(n, deleteBatchKeys+1)) })
			f.after["delete 1"] = func() { f.sizes["a"] = memberStatus{fileBytes: 100, usedBytes: 74, quotaBytes: 100} }
		},
		do:    func(ctx context.Context, b *Backend) error { return b.maintainer.deleteExpendable(ctx) },
		calls: []string{"status a", "delete 128", "delete 1", "get /p/probe", "compact 7", "status a", "status a"},
	},
	"take the turn": {
		prepare: func(f *fakeCluster, _ *Backend) {
			f.kvs["/p/compact"] = &mvccpb.KeyValue{Value: []byte("3"), ModRevision: 2}
		},
		do: func(ctx context.Context, b *Backend) error {
			written, err := b.maintainer.tryCompactTurn(ctx, 2)
			if err == nil && written != fakeRev {
				return fmt.Errorf("written at %d", written)
			}
			return err
		},
		calls: []string{"get /p/compact", "get /p/probe", "put", "compact 3"},
	},
	"take a lock": {
		do: func(ctx context.Context, b *Backend) error {
			l, err := b.tryAcquire(ctx, "/lock")
			if err == nil && l.Fence() != (store.Fence{Key: "/lock", CreateRev: fakeRev}) {
				return fmt.Errorf("fence %v", l.Fence())
			}
			return err
		},
		calls: []string{"get /lock", "grant", "put", "keep alive"},
	},
}

var aPut = store.Txn{Puts: []store.KV{{Key: "/k", Value: []byte("new")}}}

// TestEveryCallThatFails: a failed call of a cluster is an error of the backend's operation, and no
// further call follows, unless other members answer instead. Where the outcome of a write is not
// known, the error states that.
func TestEveryCallThatFails(t *testing.T) {
	for name, work := range fakeWork {
		run := func(failAt int) (*fakeCluster, error) {
			f, b := newFake(t, map[string]memberStatus{"a": {fileBytes: 100, usedBytes: 60, quotaBytes: 1000}})
			f.failAt = failAt
			if work.prepare != nil {
				work.prepare(f, b)
			}
			return f, work.do(t.Context(), b)
		}
		if f, err := run(-1); err != nil || !slices.Equal(f.calls, work.calls) {
			t.Errorf("%s: %v, called %q, want %q", name, err, f.calls, work.calls)
			continue
		}
		for n, call := range work.calls {
			f, err := run(n)
			if slices.Contains(work.without, n) {
				if errors.Is(err, errFake) || len(f.calls) == n+1 {
					t.Errorf("%s: without an answer to %s: %v, and it did not continue", name, call, err)
				}
				continue
			}
			// of a lock that was not taken
			calls := slices.DeleteFunc(f.calls[n+1:], func(c string) bool { return c == "revoke 5" })
			if !errors.Is(err, errFake) || len(calls) > 0 {
				t.Errorf("%s: %s failed: %v, then it called %q", name, call, err, calls)
			}
			if unknown := errors.Is(err, store.ErrUnknownOutcome); name != "take a lock" && unknown != (call == "put") {
				t.Errorf("%s: %s failed: %v, the outcome is unknown: %t", name, call, err, unknown)
			}
		}
	}
}

// TestLockThatWasNotTaken: the lease of a lock that was not acquired is revoked.
func TestLockThatWasNotTaken(t *testing.T) {
	for name, prepare := range map[string]func(f *fakeCluster){
		"another was first": func(f *fakeCluster) { f.lost = true }, "no answer": func(f *fakeCluster) { f.failAt = 1 },
		"no renewals": func(f *fakeCluster) { f.failAt = 2 },
	} {
		f, b := newFake(t, nil)
		prepare(f)
		l, err := b.acquire(t.Context(), "/lock")
		if l != nil || (err == nil) != f.lost || !slices.Contains(f.calls, "revoke 5") {
			t.Errorf("%s: %v, %v, called %q", name, l, err, f.calls)
		}
		f.fails["revoke 5"] = rpctypes.ErrLeaseNotFound
		if err := revokeLease(t.Context(), b.client, 5); err != nil {
			t.Errorf("%s: a lease that is gone: %v", name, err)
		}
	}
}

// TestResignOnce: a lease is revoked until that has succeeded, and not again.
func TestResignOnce(t *testing.T) {
	f, b := newFake(t, nil)
	l, err := b.Campaign(t.Context(), "/lock")
	if err != nil {
		t.Fatal(err)
	}
	f.fails["revoke 5"] = errFake
	if err := l.Resign(t.Context()); !errors.Is(err, errFake) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("not revoked: %v", err)
	}
	delete(f.fails, "revoke 5")
	for range 2 {
		if err := l.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	}
	<-l.Lost()
	if want := []string{"get /lock", "grant", "put", "keep alive", "revoke 5", "revoke 5"}; !slices.Equal(f.calls,
		want) {
		t.Errorf("called %q, want %q", f.calls, want)
	}
}

// TestCampaignWaits: it waits for the lock's own removal, tries again after errors, and ends with
// its caller or the backend.
func TestCampaignWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, b := newFake(t, nil)
		f.kvs["/lock"], f.watched = &mvccpb.KeyValue{Key: []byte("/lock")}, make(chan clientv3.WatchResponse)
		f.fails["get /lock"] = errFake
		done := make(chan store.Lease)
		go func() {
			l, err := b.Campaign(t.Context(), "/lock")
			if err != nil {
				t.Error(err)
			}
			done <- l
		}()
		time.Sleep(campaignRetry + 1)
		f.mu.Lock()
		delete(f.fails, "get /lock")
		f.mu.Unlock()
		event := func(kind mvccpb.Event_EventType, key string) {
			f.watched <- clientv3.WatchResponse{Header: fakeHeader(), Events: []*clientv3.Event{
				{Type: kind, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: 8}},
			}}
		}
		event(clientv3.EventTypeDelete, "/lock/of/another")
		event(clientv3.EventTypePut, "/lock")
		synctest.Wait()
		select {
		case <-done:
			t.Error("a lock was taken that is held")
		default:
		}
		delete(f.kvs, "/lock")
		free := time.Now()
		event(clientv3.EventTypeDelete, "/lock")
		<-done
		if waited := time.Since(free); waited > 0 {
			t.Errorf("a lock that is free was taken after %s", waited)
		}
		want := []string{
			"get /lock", "get /lock", "get /lock", "watch /lock from 8", "get /lock", "grant", "put",
			"keep alive",
		}
		if !slices.Equal(f.calls, want) {
			t.Errorf("called %q, want %q", f.calls, want)
		}

		f.fails["get /lock"] = errFake
		ctx, cancel := context.WithTimeout(t.Context(), campaignRetry*3/2)
		defer cancel()
		if _, err := b.Campaign(ctx, "/lock"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errFake) {
			t.Errorf("without time: %v", err)
		}
		b.cancel()
		if _, err := b.Campaign(t.Context(), "/lock"); !errors.Is(err, store.ErrClosed) {
			t.Errorf("a closed backend: %v", err)
		}
		synctest.Wait()
	})
}

// TestConflicts: a transaction whose conditions fail names the keys in conflict.
func TestConflicts(t *testing.T) {
	f, b := newFake(t, nil)
	f.lost = true
	f.kvs["/same"] = &mvccpb.KeyValue{ModRevision: 3, CreateRevision: 3}
	f.kvs["/changed"] = &mvccpb.KeyValue{ModRevision: 4, CreateRevision: 3}
	same := []store.Compare{{Key: "/same", ModRev: 3}, {Key: "/absent", ModRev: 0}}
	for name, tc := range map[string]struct {
		txn  store.Txn
		want []string
	}{
		"a changed record": {
			store.Txn{Compares: append(slices.Clone(same), store.Compare{Key: "/changed", ModRev: 3})},
			[]string{"/changed"},
		},
		"a removed record": {
			store.Txn{Compares: append(slices.Clone(same), store.Compare{Key: "/gone", ModRev: 3})},
			[]string{"/gone"},
		},
		"another lock": {
			store.Txn{Compares: same, Fence: &store.Fence{Key: "/changed", CreateRev: 2}},
			[]string{"/changed"},
		},
		"a lost lock": {store.Txn{Fence: &store.Fence{Key: "/gone", CreateRev: 3}}, []string{"/gone"}},
		"nothing":     {store.Txn{Compares: same, Fence: &store.Fence{Key: "/changed", CreateRev: 3}}, nil},
	} {
		f.calls = nil
		tc.txn.Puts = aPut.Puts
		_, err := b.Commit(t.Context(), tc.txn)
		conflict, _ := errors.AsType[*store.ConflictError](err)
		if tc.want == nil {
			if conflict != nil || !errors.Is(err, store.ErrUnavailable) || len(f.calls) != 2*conflictAttempts {
				t.Errorf("%s: %v after %q", name, err, f.calls)
			}
			continue
		}
		if conflict == nil || !slices.Equal(conflict.Keys, tc.want) {
			t.Errorf("%s: %v, want the keys %q", name, err, tc.want)
		}
	}
	f.fails["read"] = errFake
	if _, err := b.Commit(t.Context(), aPut); !errors.Is(err, errFake) || !errors.Is(err, store.ErrUnavailable) ||
		errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("the keys cannot be looked at: %v", err)
	}
}

// TestCommitOnAFullDatabase: the backend determines whether the transaction was applied as the last
// one.
func TestCommitOnAFullDatabase(t *testing.T) {
	compared := store.Txn{Compares: []store.Compare{{Key: "/k", ModRev: 3}}, Puts: aPut.Puts}
	for name, tc := range map[string]struct {
		txn  store.Txn
		is   *mvccpb.KeyValue
		want error
		fail bool
	}{
		"refused": {
			txn: compared, is: &mvccpb.KeyValue{ModRevision: 3, Value: []byte("new")},
			want: store.ErrUnavailable,
		},
		"applied": {txn: compared, is: &mvccpb.KeyValue{ModRevision: 6, Value: []byte("new")}},
		"another came since": {
			txn: compared, is: &mvccpb.KeyValue{ModRevision: 6, Value: []byte("other")},
			want: store.ErrUnknownOutcome,
		},
		"removed since": {txn: compared, want: store.ErrUnknownOutcome},
		"nothing was known": {
			txn: aPut, is: &mvccpb.KeyValue{ModRevision: 6, Value: []byte("new")},
			want: store.ErrUnknownOutcome,
		},
		"it cannot be looked": {txn: compared, fail: true, want: store.ErrUnknownOutcome},
	} {
		f, b := newFake(t, nil)
		f.fails["put"] = rpctypes.ErrNoSpace
		if f.kvs["/k"] = tc.is; tc.fail {
			f.fails["get /k"] = errFake
		}
		rev, err := b.Commit(t.Context(), tc.txn)
		if !errors.Is(err, tc.want) || err == nil && rev != 6 || errors.Is(err, errFake) != tc.fail {
			t.Errorf("%s: %d, %v, want %v", name, rev, err, tc.want)
		}
		if name == "refused" && !strings.Contains(err.Error(), fullMessage) {
			t.Errorf("a refusal says %v", err)
		}
		select {
		case <-b.maintainer.writeRefused:
		default:
			t.Errorf("%s: nobody was told that the database is full", name)
		}
	}
}

// TestCallsThatAreNotSent: no call reaches the cluster when the caller has stopped waiting, the
// file is rewritten, or the member has failed.
func TestCallsThatAreNotSent(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx     context.Context
		prepare func(b *Backend)
		want    string
	}{
		"a caller that is gone": {ctx: gone, want: "context canceled"},
		"a member that failed": {ctx: t.Context(), prepare: func(b *Backend) {
			b.failure = newMemberFailure()
			b.diskGuard, b.failure.err = &diskGuard{failure: b.failure}, errFake
		}, want: "The store cannot write its files"},
		"a file being rewritten": {ctx: gone, prepare: func(b *Backend) {
			_ = b.maintainer.callGate.Acquire(t.Context(), gateCapacity)
			b.maintainer.shrinking = true
		}, want: "context canceled"},
	} {
		f, b := newFake(t, nil)
		if tc.prepare != nil {
			tc.prepare(b)
		}
		_, commit := b.Commit(tc.ctx, aPut)
		if !errors.Is(commit, store.ErrUnavailable) || !strings.Contains(commit.Error(), tc.want) || len(f.calls) > 0 {
			t.Errorf("%s: %v, called %q", name, commit, f.calls)
		}
		if tc.prepare == nil {
			if strings.Contains(commit.Error(), "in time") {
				t.Errorf("%s: %v", name, commit)
			}
			continue // a read may be answered or not
		}
		_, get := b.Get(tc.ctx, "/k")
		if !errors.Is(get, store.ErrUnavailable) || len(f.calls) > 0 {
			t.Errorf("%s: %v, called %q", name, get, f.calls)
		}
	}
}

// TestEnter: enter returns why a call has to wait, and when to try again.
func TestEnter(t *testing.T) {
	_, b := newFake(t, nil)
	if err := b.maintainer.callGate.Acquire(t.Context(), gateCapacity); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errFake)
	for _, tc := range []struct {
		set  *bool
		want string
	}{
		{nil, "The store did not answer in time"},
		{&b.maintainer.refusing, fullMessage},
		{&b.maintainer.shrinking, shrinkingMessage},
	} {
		if tc.set != nil {
			b.maintainer.setFlag(tc.set, true)
			if b.BlockedReason() != tc.want {
				t.Errorf("busy: %q, want %q", b.BlockedReason(), tc.want)
			}
		}
		_, err := b.maintainer.enterCall(ctx)
		e, _ := errors.AsType[*farm.Error](err)
		if e == nil || !strings.Contains(err.Error(), tc.want) || e.RetryAfter != refusalRetryAfter ||
			!errors.Is(err, errFake) || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
	b.maintainer.callGate.Release(gateCapacity)
	for range 2 {
		leave, err := b.maintainer.enterCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leave()
		if !b.maintainer.callGate.TryAcquire(gateCapacity) {
			t.Fatal("a call that has left is still there")
		}
		b.maintainer.callGate.Release(gateCapacity)
	}
}

// TestErrorsOfEtcd: errors are classified into applied, not applied, and unknown.
func TestErrorsOfEtcd(t *testing.T) {
	for _, tc := range []struct{ err, commit, read error }{
		{rpctypes.ErrTooManyRequests, store.ErrUnavailable, store.ErrUnavailable},
		{rpctypes.ErrPermissionDenied, store.ErrUnavailable, store.ErrUnavailable},
		{rpctypes.ErrInvalidAuthToken, store.ErrUnavailable, store.ErrUnavailable},
		{rpctypes.ErrTooManyOps, store.ErrInvalid, store.ErrUnavailable},
		{rpctypes.ErrTimeout, store.ErrUnknownOutcome, store.ErrUnavailable},
		{context.DeadlineExceeded, store.ErrUnknownOutcome, store.ErrUnavailable},
		{rpctypes.ErrCompacted, store.ErrUnknownOutcome, store.ErrCompacted},
	} {
		for _, got := range []struct{ err, want error }{
			{commitError(tc.err), tc.commit}, {readError(tc.err), tc.read},
		} {
			for _, kind := range []error{
				store.ErrUnavailable, store.ErrInvalid, store.ErrUnknownOutcome,
				store.ErrCompacted,
			} {
				if errors.Is(tc.err, rpctypes.ErrTooManyOps) && errors.Is(kind, store.ErrInvalid) {
					continue
				}
				if errors.Is(got.err, kind) != errors.Is(got.want, kind) {
					t.Errorf("%v became %v, want %v", tc.err, got.err, got.want)
				}
			}
		}
	}
	if err := commitError(rpctypes.ErrTooManyOps); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("too many operations: %v", err)
	}
}

// TestList: every page is passed on, and an error of the callback ends the listing.
func TestList(t *testing.T) {
	f, b := newFake(t, nil)
	f.more, f.kvs["/k"] = 1, &mvccpb.KeyValue{Key: []byte("/k"), Value: []byte("v"), ModRevision: 4}
	f.kvs["/k\x00"] = &mvccpb.KeyValue{Key: []byte("/l")}
	var got []string
	rev, err := b.List(t.Context(), "/k", func(kvs []store.KV) error {
		got = append(got, fmt.Sprint(kvs))
		return nil
	})
	if want := []string{"[{/k [118] 4}]", "[{/l [] 0}]"}; err != nil || rev != fakeRev || !slices.Equal(got, want) {
		t.Errorf("%q at %d, %v, want %q", got, rev, err, want)
	}
	f.more = 1
	if _, err := b.List(t.Context(), "/k", func([]store.KV) error { return errFake }); !errors.Is(err, errFake) ||
		f.more != 0 {
		t.Errorf("its taker failed: %v", err)
	}
	if kv, err := b.Get(t.Context(), "/none"); err != nil || kv.Key != "/none" || kv.ModRev != 0 {
		t.Errorf("what is not there: %v, %v", kv, err)
	}
}

// TestWatchDelivers: each revision is one batch, and the error tells why the watch ended.
func TestWatchDelivers(t *testing.T) {
	event := func(key string, rev int64) *clientv3.Event {
		return &clientv3.Event{Type: clientv3.EventTypePut, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: rev}}
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errFake)
	for name, tc := range map[string]struct {
		ctx  context.Context
		last clientv3.WatchResponse
		want error
	}{
		"closed": {t.Context(), clientv3.WatchResponse{Header: fakeHeader()}, store.ErrUnavailable},
		"compacted": {
			t.Context(),
			clientv3.WatchResponse{CompactRevision: 9, Canceled: true},
			store.ErrCompacted,
		},
		"refused":                 {t.Context(), clientv3.WatchResponse{Canceled: true}, store.ErrUnavailable},
		"its caller has given up": {gone, clientv3.WatchResponse{Header: fakeHeader()}, errFake},
	} {
		f, b := newFake(t, nil)
		f.watched = make(chan clientv3.WatchResponse, 3)
		f.watched <- clientv3.WatchResponse{Created: true, Header: fakeHeader()}
		f.watched <- clientv3.WatchResponse{
			Header: fakeHeader(), Events: []*clientv3.Event{event("a", 3), event("b", 3), event("c", 5)},
		}
		f.watched <- tc.last
		close(f.watched)
		var got []string
		err := b.Watch(tc.ctx, "/w", 3, func(batch store.WatchBatch) error {
			got = append(got, fmt.Sprintf("%d:%d", batch.Rev, len(batch.Events)))
			if behind := len(b.watches.laggingStreams(batch.Rev)) > 0; behind != (batch.Rev != 2) {
				t.Errorf("%s: at %d the watch is behind: %t", name, batch.Rev, behind)
			}
			return nil
		})
		want := []string{"2:0", "3:2", "5:1"}
		if tc.last.Err() == nil {
			want = append(want, "7:0")
		}
		if !errors.Is(err, tc.want) || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q, %v", name, got, err, want, tc.want)
		}
		if ended := strings.Contains(err.Error(), "the watch ended"); ended != (name == "closed") {
			t.Errorf("%s: %v", name, err)
		}
		if b.watches.passedByAll(100) != 100 || len(b.watches.laggingStreams(100)) > 0 {
			t.Errorf("%s: a watch that has ended is waited for", name)
		}
	}
	f, b := newFake(t, nil)
	f.watched = make(chan clientv3.WatchResponse, 1)
	f.watched <- clientv3.WatchResponse{Created: true, Header: fakeHeader()}
	if err := b.Watch(t.Context(), "/w", 3, func(store.WatchBatch) error { return errFake }); !errors.Is(err, errFake) {
		t.Errorf("its taker failed: %v", err)
	}
}

// TestNeeded: it is the revision that the slowest watch has passed.
func TestNeeded(t *testing.T) {
	var w watchSet
	fast, slow := w.add(10), w.add(1)
	w.advance(fast, 20)
	if w.passedByAll(30) != 1 || len(w.laggingStreams(1)) == 0 {
		t.Errorf("a watch that has seen nothing: %d", w.passedByAll(30))
	}
	w.advance(slow, 8)
	w.advance(slow, 7) // a progress that arrives late
	if w.passedByAll(30) != 8 || len(w.laggingStreams(8)) > 0 || len(w.laggingStreams(9)) == 0 {
		t.Errorf("needed: %d", w.passedByAll(30))
	}
	w.remove(slow)
	if w.passedByAll(30) != 20 || len(w.laggingStreams(20)) > 0 {
		t.Errorf("needed without the slow one: %d", w.passedByAll(30))
	}
}

// TestClose: it waits for the maintenance of the store before it disconnects from the cluster.
func TestClose(t *testing.T) {
	synctest.Test(t, testClose)
}

func testClose(t *testing.T) {
	f, b := newFake(t, nil)
	b.maintenance.Go(func() {
		<-b.ctx.Done()
		time.Sleep(time.Millisecond)
		_ = f.called("ended")
	})
	f.fails["shut"] = errFake
	if err := b.Close(); !errors.Is(err, errFake) || !slices.Equal(f.calls, []string{"ended", "shut"}) {
		t.Errorf("%v, called %q", err, f.calls)
	}
}
