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
	b.care.log = slog.New(slog.NewTextHandler(&text, nil))
	return &text
}

// TestLook: look does the maintenance that the size of the database requires, and nothing else.
func TestLook(t *testing.T) {
	rewritten := []string{"status a", "status a", "defrag a", "status a"}
	for name, tc := range map[string]struct {
		sizes   sizes
		another bool // other processes use the file too
		noRoom  bool // on the disk
		want    []string
	}{
		"a small one": {sizes: sizes{file: 49, used: 49, quota: 100}, want: []string{"status a"}},
		"half full": {
			sizes: sizes{file: 50, used: 50, quota: 100}, want: []string{"status a", "get /p", "compact 7"},
		},
		"more than half is empty": {sizes: sizes{file: 40, used: 19, quota: 100}, want: rewritten},
		"half is empty":           {sizes: sizes{file: 40, used: 20, quota: 100}, want: []string{"status a"}},
		"too little is empty":     {sizes: sizes{file: 18, used: 8, quota: 100}, want: []string{"status a"}},
		"just enough is empty":    {sizes: sizes{file: 18, used: 7, quota: 100}, want: rewritten},
		"a file of others": {
			sizes: sizes{file: 40, used: 19, quota: 100}, another: true, want: []string{"status a"},
		},
		"a disk without room": {
			sizes: sizes{file: 40, used: 19, quota: 100}, noRoom: true, want: []string{"status a"},
		},
		"a member without a quota": {sizes: sizes{file: 40, used: 40}, want: []string{"status a"}},
		"at half of its own default": {
			sizes: sizes{file: defaultQuota / 2, used: defaultQuota / 2},
			want:  []string{"status a", "get /p", "compact 7"},
		},
	} {
		f, b := newFake(t, map[string]sizes{"a": tc.sizes})
		b.ownFile, b.care.shrinkMin = !tc.another, 10
		if tc.noRoom {
			b.guard = &diskGuard{dir: t.TempDir(), resume: 1 << 62}
		}
		b.care.note(&b.care.refusing, true) // as it was before
		if err := b.care.look(t.Context()); err != nil || !slices.Equal(f.calls, tc.want) {
			t.Errorf("%s: %v, called %q, want %q", name, err, f.calls, tc.want)
		}
		if b.BlockedReason() != "" {
			t.Errorf("%s: busy: %s", name, b.BlockedReason())
		}
		f.calls = nil
		if err := b.care.look(t.Context()); err != nil || slices.Contains(f.calls, "compact 7") {
			t.Errorf("%s, a moment later: %v, called %q", name, err, f.calls)
		}
	}
	if _, b := newFake(t, nil); !b.care.worthwhile(sizes{file: shrinkMin + 1}) ||
		b.care.worthwhile(sizes{file: shrinkMin}) {
		t.Error("the least that is worth a rewrite is another")
	}
}

// TestLookCompactsAgain: a later check compacts again.
func TestLookCompactsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, b := newFake(t, map[string]sizes{"a": {file: 60, used: 60, quota: 100}})
		for n, wait := range []time.Duration{0, compactGap - 1, 1} {
			time.Sleep(wait)
			f.calls = nil
			if err := b.care.look(t.Context()); err != nil || slices.Contains(f.calls, "compact 7") != (n != 1) {
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
		b.care.alarm(t.Context(), sizes{file: step.file, quota: 100})
		if got := text.String()[before:]; (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("at %d: %q, want %q", step.file, got, step.want)
		}
	}
}

// TestRecoveryReports: the store reports that it refuses changes until it accepts them again, and
// waits before the next try.
func TestRecoveryReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, b := newFake(t, map[string]sizes{"a": {file: 100, used: 95, quota: 100, full: true}})
		f.alarms = []*etcdserverpb.AlarmMember{{MemberID: 1, Alarm: alarmFull}}
		f.after["defrag a"] = func() {
			if !b.care.refusing || !b.care.shrinking {
				t.Error("the store does not say that it makes room")
			}
		}
		if err := b.care.look(t.Context()); !errors.Is(err, errStillFull) || b.BlockedReason() != fullSentence ||
			slices.Contains(f.calls, "alarms") {
			t.Errorf("nothing could go: %v, busy %q, called %q", err, b.BlockedReason(), f.calls)
		}
		f.calls = nil
		time.Sleep(recoverAgain - 1)
		if err := b.care.look(t.Context()); err != nil || len(f.calls) != 1 {
			t.Errorf("too early: %v, called %q", err, f.calls)
		}
		time.Sleep(time.Nanosecond)
		f.sizes["a"] = sizes{file: 100, used: 94, quota: 100, full: true}
		if err := b.care.look(t.Context()); err != nil || b.BlockedReason() != "" ||
			!slices.Contains(f.calls, "disarm NOSPACE of 1") {
			t.Errorf("it has room: %v, busy %q, called %q", err, b.BlockedReason(), f.calls)
		}
		f.calls = nil
		if err := b.care.look(t.Context()); err != nil || len(f.calls) < 2 {
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
		"nothing to do": {used: shareShed - 1, records: 10_000, want: 0},
		"too much":      {used: shareShed, records: 10_000, want: shedMany},
		"much too much": {used: shareShed + 20, records: 10_000, want: 3 * shedMany},
		"too few":       {used: shareShed + 20, records: shedMany + 5, want: shedMany + 5},
		"none":          {used: shareShed + 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, b := newFake(t, map[string]sizes{"a": {file: 100, used: tc.used, quota: 100}})
			left := tc.records
			b.SetExpendable(func(n int) []string {
				n = min(n, left)
				left -= n
				return make([]string, n)
			})
			f.after["compact 7"] = func() { f.sizes["a"] = sizes{file: 100, used: f.sizes["a"].used - 10, quota: 100} }
			if err := b.care.shed(t.Context()); err != nil || tc.records-left != tc.want {
				t.Errorf("%s: %d records went, %v, want %d", name, tc.records-left, err, tc.want)
			}
		})
	}
	f, b := newFake(t, map[string]sizes{"a": fullSizes})
	if err := b.care.shed(t.Context()); err != nil || len(f.calls) > 0 {
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
			f, b := newFake(t, map[string]sizes{"a": {used: 50}})
			looks := 0
			f.after["status a"] = func() {
				if looks++; looks == tc.less {
					f.sizes["a"] = sizes{used: 49}
				}
			}
			if err := b.care.settle(t.Context(), 50); err != nil || looks != tc.want {
				t.Errorf("%s: %d looks, %v, want %d", name, looks, err, tc.want)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errFake)
			if err := b.care.settle(ctx, 0); !errors.Is(err, errFake) {
				t.Errorf("%s: its caller has given up: %v", name, err)
			}
		})
	}
}

// TestDefrag: calls are delayed during a defragmentation, and continue whatever its result.
func TestDefrag(t *testing.T) {
	f, b := newFake(t, map[string]sizes{"a": {file: 10, used: 4, quota: 100}})
	b.guard = &diskGuard{dir: t.TempDir()}
	f.fails["defrag a"] = errFake
	if err := b.care.defrag(t.Context(), "a"); !errors.Is(err, errFake) || b.BlockedReason() != "" ||
		!b.care.gate.TryAcquire(gateAll) {
		t.Errorf("%v, busy %q", err, b.BlockedReason())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errFake)
	f.calls = nil
	if err := b.care.defrag(ctx, "a"); !errors.Is(err, errFake) || slices.Contains(f.calls, "defrag a") {
		t.Errorf("calls are under way: %v, called %q", err, f.calls)
	}
	b.care.gate.Release(gateAll)
	b.guard.resume = 1 << 62
	f.calls = nil
	err := b.care.defrag(t.Context(), "a")
	if !strings.Contains(fmt.Sprint(err), "the disk lacks space for a copy of 4 bytes") ||
		slices.Contains(f.calls, "defrag a") {
		t.Errorf("on a full disk: %v, called %q", err, f.calls)
	}
}

// TestCompactionOfWhatIsRemoved: a compaction of compacted revisions succeeds.
func TestCompactionOfWhatIsRemoved(t *testing.T) {
	f, b := newFake(t, nil)
	f.fails["compact 7"] = rpctypes.ErrCompacted
	if err := b.care.compact(t.Context()); err != nil {
		t.Errorf("compacted already: %v", err)
	}
	b.watches.add(4)
	f.calls = nil
	if err := b.care.compact(t.Context()); err != nil || !slices.Equal(f.calls, []string{"get /p", "compact 3"}) {
		t.Errorf("with a watch that is behind: %v, called %q", err, f.calls)
	}
}

// TestTurn: a replica takes its turn when no other has since, and compacts to the revision in the
// last note.
func TestTurn(t *testing.T) {
	for name, tc := range map[string]struct {
		note *mvccpb.KeyValue
		seen int64
		lost bool
		next int64
		want []string
	}{
		"the first one": {next: fakeRev, want: []string{"get /p/compact", "get /p", "put"}},
		"another was here": {
			note: &mvccpb.KeyValue{ModRevision: 5, Value: []byte("3")}, seen: 2, next: 5,
			want: []string{"get /p/compact"},
		},
		"nobody was here": {
			note: &mvccpb.KeyValue{ModRevision: 5, Value: []byte("3")}, seen: 5, next: fakeRev,
			want: []string{"get /p/compact", "get /p", "put", "compact 3"},
		},
		"another was first": {
			note: &mvccpb.KeyValue{ModRevision: 5, Value: []byte("3")}, seen: 5, lost: true, next: 5,
			want: []string{"get /p/compact", "get /p", "put", "read"},
		},
		"a note of nothing": {
			note: &mvccpb.KeyValue{ModRevision: 5, Value: []byte("0")}, seen: 5, next: fakeRev,
			want: []string{"get /p/compact", "get /p", "put"},
		},
		"a note that is no number": {
			note: &mvccpb.KeyValue{ModRevision: 5, Value: []byte("99999999999999999999")}, seen: 5, next: fakeRev,
			want: []string{"get /p/compact", "get /p", "put"},
		},
	} {
		f, b := newFake(t, nil)
		f.kvs["/p/compact"], f.lost = tc.note, tc.lost
		f.after["put"] = func() {
			if tc.lost {
				f.kvs["/p/compact"] = &mvccpb.KeyValue{ModRevision: 6}
			}
		}
		next, err := b.care.turn(t.Context(), tc.seen)
		if err != nil || next != tc.next || !slices.Equal(f.calls, tc.want) {
			t.Errorf("%s: %d, %v, called %q, want %d, %q", name, next, err, f.calls, tc.next, tc.want)
		}
	}
}

// TestMaintainerRuns: the maintainer runs periodically and immediately after a refused write, and
// does nothing for a member that has failed.
func TestMaintainerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, b := newFake(t, map[string]sizes{"a": {file: 1, used: 1, quota: 100}})
		text := said(b)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			b.care.run(ctx, time.Minute)
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
		b.care.full()
		looks("when the database was full", 3)
		cancel()
		<-ended
		b.failure = newFailure()
		b.failure.err = errFake
		b.care.run(t.Context(), time.Minute)
		looks("after a failure", 3)
	})
}
