package etcd

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/store"
)

// newTestGuard returns a guard of an empty directory on a disk with free space.
func newTestGuard(t *testing.T) *diskGuard {
	t.Helper()
	g, err := newDiskGuard(t.TempDir(), nil, newFailure())
	if err != nil {
		t.Fatal(err)
	}
	g.refuse, g.resume, g.reserve, g.headroom = 0, 0, 1<<20, 1<<20
	return g
}

const endless = 1 << 62 // bytes, more than any disk has

// TestGuardRefuses: the guard refuses changes while there is little space and frees its reserve,
// and allocates the reserve again before it accepts changes.
func TestGuardRefuses(t *testing.T) {
	g := newTestGuard(t)
	b := &Backend{guard: g}
	b.care = newMaintainer(b, nil)
	check := func(what string, full, reserve bool) {
		t.Helper()
		err := g.admit()
		sentence := ""
		if full {
			sentence = diskFullSentence
		}
		if (err != nil) != full || g.sentence() != sentence || b.Refusing() != sentence || g.hasReserve() != reserve {
			t.Errorf("%s: %v, %q, a reserve: %t", what, err, g.sentence(), g.hasReserve())
		}
		if full && (!errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), diskFullSentence)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	g.dropReserveLocked()
	check("with space", false, true)
	if info, err := os.Stat(g.reservePath()); err != nil || info.Size() != g.reserve ||
		info.Sys().(*syscall.Stat_t).Blocks < g.reserve/512 {
		t.Errorf("the reserve takes no space: %v, %v", info, err)
	}
	g.refuse, g.resume = endless, endless
	check("without", true, false)
	g.refuse = 0
	check("with a little more", true, false)
	g.resume, g.reserve = 0, endless
	check("without space for a reserve", true, false)
	g.reserve = 1 << 20
	check("with space again", false, true)

	b.care.note(&b.care.refusing, true)
	if b.Refusing() != fullSentence {
		t.Errorf("a full database: %q", b.Refusing())
	}
	g.failure.err = errFake
	if err := g.admit(); !errors.Is(err, errFake) || g.sentence() != g.failure.sentence() ||
		b.Refusing() != g.failure.sentence() {
		t.Errorf("after a failure: %v, %q", err, g.sentence())
	}
	var none *diskGuard
	if none.admit() != nil || none.sentence() != "" || !none.roomFor(endless) || (&Backend{}).Restart() != nil ||
		b.Restart() == nil {
		t.Error("without a guard something is refused")
	}
}

// TestGuardWithoutAReserve: a file system that does not support a reserve is used without one, but
// not a full one.
func TestGuardWithoutAReserve(t *testing.T) {
	small := &diskGuard{dir: smallDisk(t, "1m"), log: slog.New(slog.DiscardHandler), reserve: 64 << 20}
	if small.makeReserve() || small.hasReserve() {
		t.Error("there is a reserve that is larger than the disk")
	}
	g := newTestGuard(t)
	if !g.makeReserve() {
		t.Error("there is no reserve")
	}
	if err := os.Remove(g.reservePath()); err != nil {
		t.Fatal(err)
	}
	g.dropReserveLocked() // without an error
	if err := os.Mkdir(g.reservePath(), 0o700); err != nil {
		t.Fatal(err)
	}
	if !g.makeReserve() {
		t.Error("a reserve that cannot be made keeps the store from taking changes")
	}
	gone := &diskGuard{dir: filepath.Join(g.dir,
		"gone"), failure: newFailure(), refuse: endless, log: slog.New(slog.DiscardHandler)}
	if gone.look() || gone.admit() != nil || gone.hasReserve() || !gone.roomFor(endless) {
		t.Error("a directory that is gone is called full")
	}
	if _, err := newDiskGuard(gone.dir, nil, nil); !errors.Is(err, fs.ErrNotExist) ||
		!strings.HasPrefix(err.Error(), "free space of ") {
		t.Errorf("a guard of a directory that is gone: %v", err)
	}
	if _, _, err := diskSpace(gone.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its space: %v", err)
	}
}

// TestAllocateAhead: space for the database is allocated before it is used, whatever its length.
func TestAllocateAhead(t *testing.T) {
	g := newTestGuard(t)
	g.allocateAhead() // no database yet
	path := filepath.Join(g.dir, Subdir, "member", "snap", "db")
	blocks := func() (length, allocated int64) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size(), info.Sys().(*syscall.Stat_t).Blocks * 512
	}
	for _, size := range []int{100, 3 << 20} {
		writeFiles(t, g.dir, map[string][]byte{filepath.Join(Subdir, "member", "snap", "db"): make([]byte, size)})
		g.allocateAhead()
		if length, allocated := blocks(); length != int64(size) || allocated < int64(size)+g.headroom {
			t.Errorf("%d bytes are allocated of a file of %d", allocated, length)
		}
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	g.allocated = g.headroom // as for this length
	g.allocateAhead()
	if _, allocated := blocks(); allocated > 0 {
		t.Error("it was allocated twice")
	}
	g.allocated, g.headroom = 0, endless
	g.allocateAhead()
	if g.allocated != 0 {
		t.Error("a disk has room for everything")
	}
	read, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	if err := allocate(read, 0, 1); !errors.Is(err, syscall.EBADF) {
		t.Errorf("a file that is only read: %v", err)
	}
}

// TestGuardAsksForANewProcess: the guard requests a new process once the files can be written
// again, and leaves the file that makes it write them again.
func TestGuardAsksForANewProcess(t *testing.T) {
	mark := func(g *diskGuard) string {
		data, _ := os.ReadFile(filepath.Join(g.dir, unsyncedFile))
		return string(data)
	}
	asked := func(g *diskGuard) string {
		select {
		case cause := <-g.restart:
			return cause.Error()
		default:
			return ""
		}
	}
	for name, tc := range map[string]struct {
		prepare func(g *diskGuard)
		full    bool
		want    string
		mark    string
	}{
		"nothing has failed": {prepare: func(*diskGuard) {}},
		"a failure": {prepare: func(g *diskGuard) {
			g.failure.err = errFake
		}, want: errFake.Error(), mark: errFake.Error() + "\n"},
		"no next log file": {prepare: (*diskGuard).lostSegment, want: "the next log file could not be allocated"},
		"the disk is full": {prepare: func(g *diskGuard) { g.failure.err = errFake }, full: true},
		"a moment ago":     {prepare: func(g *diskGuard) { g.failure.err, g.probed = errFake, time.Now() }},
		"it is under way":  {prepare: func(g *diskGuard) { g.failure.err, g.restarting = errFake, true }},
		"it cannot be written": {prepare: func(g *diskGuard) {
			g.failure.err, g.dir = errFake,
				filepath.Join(g.dir, "gone")
		}},
		"the mark cannot be": {prepare: func(g *diskGuard) {
			g.failure.err = errFake
			_ = os.Mkdir(filepath.Join(g.dir, unsyncedFile), 0o700)
		}},
	} {
		g := newTestGuard(t)
		tc.prepare(g)
		g.recover(tc.full)
		if got := asked(g); got != tc.want || mark(g) != tc.mark {
			t.Errorf("%s: asked for with %q, mark %q, want %q, %q", name, got, mark(g), tc.want, tc.mark)
		}
		g.probed = time.Time{}
		if g.recover(tc.full); tc.want != "" && asked(g) != "" {
			t.Errorf("%s: asked for twice", name)
		}
		if _, err := os.Stat(filepath.Join(g.dir, probeFile)); err == nil {
			t.Errorf("%s: the probe is still there", name)
		}
	}
	g := newTestGuard(t)
	if _, err := syncsOf(t, g.dir, 0, g.probe); !errors.Is(err, errSync) {
		t.Errorf("a probe that cannot be synced: %v", err)
	}
}

// TestGuardRuns: the guard does all of its work while the store is open.
func TestGuardRuns(t *testing.T) {
	g := newTestGuard(t)
	writeFiles(t, g.dir, map[string][]byte{filepath.Join(Subdir, "member", "snap", "db"): nil})
	g.failure.err = errFake
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.run(ctx)
	if g.allocated != g.headroom || !g.restarting || !g.hasReserve() {
		t.Errorf("allocated %d, restarting %t, a reserve %t", g.allocated, g.restarting, g.hasReserve())
	}
}
