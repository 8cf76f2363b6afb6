package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// said collects the logged messages.
func said(b *Backend) *safeBuffer {
	var text safeBuffer
	b.maintainer.log = slog.New(slog.NewTextHandler(&text, nil))
	return &text
}

// TestLook: look does the maintenance that the size of the database requires, and nothing else.
func TestLook(t *testing.T) {
	rewritten := []string{"status a", "status a", "defrag a", "status a"}
	for name, tc := range map[string]struct {
		sizes   memberStatus
		another bool // other processes use the file too
		noRoom  bool // on the disk
		want    []string
	}{
		"a small one": {sizes: memberStatus{fileBytes: 49, usedBytes: 49, quotaBytes: 100}, want: []string{"status a"}},
		"half full": {
			sizes: memberStatus{fileBytes: 50, usedBytes: 50, quotaBytes: 100},
			want:  []string{"status a", "get /p/probe", "compact 7"},
		},
		"more than half is empty": {
			sizes: memberStatus{fileBytes: 40, usedBytes: 19, quotaBytes: 100},
			want:  rewritten,
		},
		"half is empty": {
			sizes: memberStatus{fileBytes: 40, usedBytes: 20, quotaBytes: 100},
			want:  []string{"status a"},
		},
		"too little is empty": {
			sizes: memberStatus{fileBytes: 18, usedBytes: 8, quotaBytes: 100},
			want:  []string{"status a"},
		},
		"just enough is empty": {sizes: memberStatus{fileBytes: 18, usedBytes: 7, quotaBytes: 100}, want: rewritten},
		"a file of others": {
			sizes: memberStatus{fileBytes: 40, usedBytes: 19, quotaBytes: 100}, another: true,
			want: []string{"status a"},
		},
		"a disk without room": {
			sizes: memberStatus{fileBytes: 40, usedBytes: 19, quotaBytes: 100}, noRoom: true,
			want: []string{"status a"},
		},
		"a member without a quota": {sizes: memberStatus{fileBytes: 40, usedBytes: 40}, want: []string{"status a"}},
		"at half of its own default": {
			sizes: memberStatus{fileBytes: fallbackQuotaBytes / 2, usedBytes: fallbackQuotaBytes / 2},
			want:  []string{"status a", "get /p/probe", "compact 7"},
		},
	} {
		f, b := newFake(t, map[string]memberStatus{"a": tc.sizes})
		b.ownsFile, b.maintainer.minShrinkBytes = !tc.another, 10
		if tc.noRoom {
			b.diskGuard = &diskGuard{dir: t.TempDir(), resumeAbove: 1 << 62}
		}
		b.maintainer.setFlag(&b.maintainer.refusing, true) // as it was before
		if err := b.maintainer.maintain(t.Context()); err != nil || !slices.Equal(f.calls, tc.want) {
			t.Errorf("%s: %v, called %q, want %q", name, err, f.calls, tc.want)
		}
		if b.BlockedReason() != "" {
			t.Errorf("%s: busy: %s", name, b.BlockedReason())
		}
		f.calls = nil
		if err := b.maintainer.maintain(t.Context()); err != nil || slices.Contains(f.calls, "compact 7") {
			t.Errorf("%s, a moment later: %v, called %q", name, err, f.calls)
		}
	}
	if _, b := newFake(t, nil); !b.maintainer.isDefragWorthwhile(memberStatus{fileBytes: defaultMinShrinkBytes + 1}) ||
		b.maintainer.isDefragWorthwhile(memberStatus{fileBytes: defaultMinShrinkBytes}) {
		t.Error("the least that is worth a rewrite is another")
	}
}

// TestLookCompactsAgain: a later check compacts again.
func TestLookCompactsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, b := newFake(t, map[string]memberStatus{"a": {fileBytes: 60, usedBytes: 60, quotaBytes: 100}})
		for n, wait := range []time.Duration{0, minCompactInterval - 1, 1} {
			time.Sleep(wait)
			f.calls = nil
			if err := b.maintainer.maintain(t.Context()); err != nil ||
				slices.Contains(f.calls, "compact 7") != (n != 1) {
				t.Errorf("look %d: %v, called %q", n, err, f.calls)
			}
		}
	})
}

// TestAlarmIsReportedOnce: one alarm is logged for each share of the quota that is reached.
func TestAlarmIsReportedOnce(t *testing.T) {
	_, b := newFake(t, nil)
	text := said(b)
	for _, step := range []struct {
		file int64
		want string
	}{
		{49, ""},
		{50, "level=WARN"},
		{79, ""},
		{80, "level=ERROR"},
		{99, ""},
		{60, ""},
		{80, "level=ERROR"},
		{10, ""},
		{50, "level=WARN"},
	} {
		before := len(text.String())
		b.maintainer.logAlarm(t.Context(), memberStatus{fileBytes: step.file, quotaBytes: 100})
		if got := text.String()[before:]; (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("at %d: %q, want %q", step.file, got, step.want)
		}
	}
}

// TestRecoveryReports: the store reports that it refuses changes until it accepts them again, and
// waits before the next try.
func TestRecoveryReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, b := newFake(t,
			map[string]memberStatus{"a": {fileBytes: 100, usedBytes: 95, quotaBytes: 100, noSpace: true}})
		f.alarms = []*etcdserverpb.AlarmMember{{MemberID: 1, Alarm: noSpaceAlarm}}
		f.after["defrag a"] = func() {
			if !b.maintainer.refusing || !b.maintainer.shrinking {
				t.Error("the store does not say that it makes room")
			}
		}
		if err := b.maintainer.maintain(t.Context()); !errors.Is(err, errStillFull) ||
			b.BlockedReason() != fullMessage ||
			slices.Contains(f.calls, "alarms") {
			t.Errorf("nothing could go: %v, busy %q, called %q", err, b.BlockedReason(), f.calls)
		}
		f.calls = nil
		time.Sleep(defaultRecoveryPause - 1)
		if err := b.maintainer.maintain(t.Context()); err != nil || len(f.calls) != 1 {
			t.Errorf("too early: %v, called %q", err, f.calls)
		}
		time.Sleep(time.Nanosecond)
		f.sizes["a"] = memberStatus{fileBytes: 100, usedBytes: 94, quotaBytes: 100, noSpace: true}
		if err := b.maintainer.maintain(t.Context()); err != nil || b.BlockedReason() != "" ||
			!slices.Contains(f.calls, "disarm NOSPACE of 1") {
			t.Errorf("it has room: %v, busy %q, called %q", err, b.BlockedReason(), f.calls)
		}
		f.calls = nil
		if err := b.maintainer.maintain(t.Context()); err != nil || len(f.calls) < 2 {
			t.Errorf("full again, at once: %v, called %q", err, f.calls)
		}
	})
}

// TestShed: records are released only while too much is in use, until none are left.
func TestShed(t *testing.T) {
	for name, tc := range map[string]struct {
		used    int64
		records int // that may be deleted
		want    int // that were deleted
	}{
		"nothing to do": {used: deleteRecordsPercent - 1, records: 10_000, want: 0},
		"too much":      {used: deleteRecordsPercent, records: 10_000, want: deletesPerCheck},
		"much too much": {used: deleteRecordsPercent + 20, records: 10_000, want: 3 * deletesPerCheck},
		"too few":       {used: deleteRecordsPercent + 20, records: deletesPerCheck + 5, want: deletesPerCheck + 5},
		"none":          {used: deleteRecordsPercent + 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, b := newFake(t, map[string]memberStatus{"a": {fileBytes: 100, usedBytes: tc.used, quotaBytes: 100}})
			left := tc.records
			b.SetExpendable(func(n int) []string {
				n = min(n, left)
				left -= n
				return make([]string, n)
			})
			f.after["compact 7"] = func() {
				f.sizes["a"] = memberStatus{fileBytes: 100, usedBytes: f.sizes["a"].usedBytes - 10, quotaBytes: 100}
			}
			if err := b.maintainer.deleteExpendable(t.Context()); err != nil || tc.records-left != tc.want {
				t.Errorf("%s: %d records went, %v, want %d", name, tc.records-left, err, tc.want)
			}
		})
	}
	f, b := newFake(t, map[string]memberStatus{"a": fullSizes})
	if err := b.maintainer.deleteExpendable(t.Context()); err != nil || len(f.calls) > 0 {
		t.Errorf("with nothing expendable: %v, called %q", err, f.calls)
	}
}

// TestSettle: it waits until less is in use, for half a second at most.
func TestSettle(t *testing.T) {
	for name, tc := range map[string]struct {
		less int // the check that finds less in use; 0: none
		want int // checks
	}{"at once": {1, 1}, "later": {3, 3}, "never": {0, 10}} {
		synctest.Test(t, func(t *testing.T) {
			f, b := newFake(t, map[string]memberStatus{"a": {usedBytes: 50}})
			looks := 0
			f.after["status a"] = func() {
				if looks++; looks == tc.less {
					f.sizes["a"] = memberStatus{usedBytes: 49}
				}
			}
			if err := b.maintainer.awaitFreedPages(t.Context(), "a", 50); err != nil || looks != tc.want {
				t.Errorf("%s: %d looks, %v, want %d", name, looks, err, tc.want)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errFake)
			if err := b.maintainer.awaitFreedPages(ctx, "a", 0); !errors.Is(err, errFake) {
				t.Errorf("%s: its caller has given up: %v", name, err)
			}
		})
	}
}

// TestDefrag: calls are delayed during a defragmentation, and continue whatever its result.
func TestDefrag(t *testing.T) {
	f, b := newFake(t, map[string]memberStatus{"a": {fileBytes: 10, usedBytes: 4, quotaBytes: 100}})
	b.diskGuard = &diskGuard{dir: t.TempDir()}
	f.fails["defrag a"] = errFake
	if err := b.maintainer.defrag(t.Context(), "a"); !errors.Is(err, errFake) || b.BlockedReason() != "" ||
		!b.maintainer.callGate.TryAcquire(gateCapacity) {
		t.Errorf("%v, busy %q", err, b.BlockedReason())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errFake)
	f.calls = nil
	if err := b.maintainer.defrag(ctx, "a"); !errors.Is(err, errFake) || slices.Contains(f.calls, "defrag a") {
		t.Errorf("calls are under way: %v, called %q", err, f.calls)
	}
	b.maintainer.callGate.Release(gateCapacity)
	b.diskGuard.resumeAbove = 1 << 62
	f.calls = nil
	err := b.maintainer.defrag(t.Context(), "a")
	if !strings.Contains(fmt.Sprint(err), "not enough disk space for a copy of 4 bytes") ||
		slices.Contains(f.calls, "defrag a") {
		t.Errorf("on a full disk: %v, called %q", err, f.calls)
	}
}

// TestCompactionOfWhatIsRemoved: a compaction of compacted revisions succeeds.
func TestCompactionOfWhatIsRemoved(t *testing.T) {
	f, b := newFake(t, nil)
	f.fails["compact 7"] = rpctypes.ErrCompacted
	if err := b.maintainer.compact(t.Context()); err != nil {
		t.Errorf("compacted already: %v", err)
	}
	b.watches.add(4)
	f.calls = nil
	err := b.maintainer.compact(t.Context())
	if err != nil || !slices.Equal(f.calls, []string{"get /p/probe", "compact 3"}) {
		t.Errorf("with a watch that is behind: %v, called %q", err, f.calls)
	}
}

// TestCompactionPeriod: a replica takes its turn when no other has since, and compacts to the revision in the
// last note.
func TestCompactionPeriod(t *testing.T) {
	for name, tc := range map[string]struct {
		note *mvccpb.KeyValue
		seen int64
		lost bool
		next int64
		want []string
	}{
		"the first one": {next: fakeRev, want: []string{"get /p/compact", "get /p/probe", "put"}},
		"another was here": {
			note: &mvccpb.KeyValue{ModRevision: 5, Value: []byte("3")}, seen: 2, next: 5,
			want: []string{"get /p/compact"},
		},
		"nobody was here": {
			note: &mvccpb.KeyValue{ModRevision: 5, Value: []byte("3")}, seen: 5, next: fakeRev,
			want: []string{"get /p/compact", "get /p/probe", "put", "compact 3"},
		},
		"another was first": {
			note: &mvccpb.KeyValue{ModRevision: 5, Value: []byte("3")}, seen: 5, lost: true, next: 5,
			want: []string{"get /p/compact", "get /p/probe", "put", "read"},
		},
		"a note of nothing": {
			note: &mvccpb.KeyValue{ModRevision: 5, Value: []byte("0")}, seen: 5, next: fakeRev,
			want: []string{"get /p/compact", "get /p/probe", "put"},
		},
		"a note that is no number": {
			note: &mvccpb.KeyValue{ModRevision: 5, Value: []byte("99999999999999999999")}, seen: 5, next: fakeRev,
			want: []string{"get /p/compact", "get /p/probe", "put"},
		},
	} {
		f, b := newFake(t, nil)
		f.kvs["/p/compact"], f.lost = tc.note, tc.lost
		f.after["put"] = func() {
			if tc.lost {
				f.kvs["/p/compact"] = &mvccpb.KeyValue{ModRevision: 6}
			}
		}
		next, err := b.maintainer.tryCompactTurn(t.Context(), tc.seen)
		if err != nil || next != tc.next || !slices.Equal(f.calls, tc.want) {
			t.Errorf("%s: %d, %v, called %q, want %d, %q", name, next, err, f.calls, tc.next, tc.want)
		}
	}
}

// TestMaintainerRuns: the maintainer runs periodically and immediately after a refused write, and
// does nothing for a member that has failed.
func TestMaintainerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, b := newFake(t, map[string]memberStatus{"a": {fileBytes: 1, usedBytes: 1, quotaBytes: 100}})
		text := said(b)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			b.maintainer.run(ctx, time.Minute)
			close(ended)
		}()
		looks := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			if len(f.calls) != want {
				t.Errorf("%s: %d looks, want %d", what, len(f.calls), want)
			}
		}
		looks("at the start", 1)
		f.mu.Lock()
		f.fails["status a"] = errFake
		f.mu.Unlock()
		time.Sleep(time.Minute)
		looks("after its time", 2)
		if !strings.Contains(text.String(), errFake.Error()) {
			t.Errorf("it does not say what failed: %q", text)
		}
		b.maintainer.notifyFull()
		looks("when the database was full", 3)
		cancel()
		<-ended
		b.failure = newMemberFailure()
		b.failure.err = errFake
		b.maintainer.run(t.Context(), time.Minute)
		looks("after a failure", 3)
	})
}

// TestDeniedCompactionDeletesNothing: without a compaction deleted records make no room.
func TestDeniedCompactionDeletesNothing(t *testing.T) {
	f, b := newFake(t, map[string]memberStatus{"a": fullSizes})
	b.SetExpendable(func(n int) []string { return make([]string, n) })
	f.fails["compact 7"] = rpctypes.ErrPermissionDenied
	err := b.maintainer.maintain(t.Context())
	if want := []string{"status a", "get /p/probe", "compact 7"}; err != nil || !slices.Equal(f.calls, want) {
		t.Errorf("%v, called %q, want %q", err, f.calls, want)
	}
}
