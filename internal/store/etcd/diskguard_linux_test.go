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
	g, err := newDiskGuard(t.TempDir(), nil, newMemberFailure())
	if err != nil {
		t.Fatal(err)
	}
	g.refuseBelow, g.resumeAbove, g.reserveSize, g.headroomSize = 0, 0, 1<<20, 1<<20
	return g
}

const endless = 1 << 62 // bytes, more than any disk has

// TestGuardRefuses: the guard refuses changes while there is little space and frees its reserve,
// and allocates the reserve again before it accepts changes.
func TestGuardRefuses(t *testing.T) {
	g := newTestGuard(t)
	b := &Backend{diskGuard: g}
	b.maintainer = newMaintainer(b, nil)
	check := func(what string, full, reserve bool) {
		t.Helper()
		err := g.checkWritable()
		sentence := ""
		if full {
			sentence = diskFullMessage
		}
		if (err != nil) != full || g.refusalMessage() != sentence || b.RefusalMessage() != sentence ||
			g.hasReserve() != reserve {
			t.Errorf("%s: %v, %q, a reserve: %t", what, err, g.refusalMessage(), g.hasReserve())
		}
		if full && (!errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), diskFullMessage)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	g.freeReserveLocked()
	check("with space", false, true)
	if info, err := os.Stat(g.reservePath()); err != nil || info.Size() != g.reserveSize ||
		info.Sys().(*syscall.Stat_t).Blocks < g.reserveSize/512 {
		t.Errorf("the reserve takes no space: %v, %v", info, err)
	}
	g.refuseBelow, g.resumeAbove = endless, endless
	check("without", true, false)
	g.refuseBelow = 0
	check("with a little more", true, false)
	g.resumeAbove, g.reserveSize = 0, endless
	check("without space for a reserve", true, false)
	g.reserveSize = 1 << 20
	check("with space again", false, true)

	b.maintainer.setFlag(&b.maintainer.refusing, true)
	if b.RefusalMessage() != fullMessage {
		t.Errorf("a full database: %q", b.RefusalMessage())
	}
	g.failure.err = errFake
	if err := g.checkWritable(); !errors.Is(err, errFake) || g.refusalMessage() != g.failure.refusalMessage() ||
		b.RefusalMessage() != g.failure.refusalMessage() {
		t.Errorf("after a failure: %v, %q", err, g.refusalMessage())
	}
	var none *diskGuard
	if none.checkWritable() != nil || none.refusalMessage() != "" || !none.hasSpaceFor(endless) ||
		(&Backend{}).RestartNeeded() != nil ||
		b.RestartNeeded() == nil {
		t.Error("without a guard something is refused")
	}
}

// TestGuardWithoutAReserve: a file system that does not support a reserve is used without one, but
// not a full one.
func TestGuardWithoutAReserve(t *testing.T) {
	small := &diskGuard{dir: smallDisk(t, "1m"), log: slog.New(slog.DiscardHandler), reserveSize: 64 << 20}
	if small.ensureReserve() || small.hasReserve() {
		t.Error("there is a reserve that is larger than the disk")
	}
	g := newTestGuard(t)
	if !g.ensureReserve() {
		t.Error("there is no reserve")
	}
	if err := os.Remove(g.reservePath()); err != nil {
		t.Fatal(err)
	}
	g.freeReserveLocked() // without an error
	if err := os.Mkdir(g.reservePath(), 0o700); err != nil {
		t.Fatal(err)
	}
	if !g.ensureReserve() {
		t.Error("a reserve that cannot be made keeps the store from taking changes")
	}
	gone := &diskGuard{dir: filepath.Join(g.dir,
		"gone"), failure: newMemberFailure(), refuseBelow: endless, log: slog.New(slog.DiscardHandler)}
	if gone.checkSpace() || gone.checkWritable() != nil || gone.hasReserve() || !gone.hasSpaceFor(endless) {
		t.Error("a directory that is gone is called full")
	}
	if _, err := newDiskGuard(gone.dir, nil, nil); !errors.Is(err, fs.ErrNotExist) ||
		!strings.HasPrefix(err.Error(), "get free space of ") {
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
	path := filepath.Join(g.dir, MemberSubdir, "member", "snap", "db")
	blocks := func() (length, allocated int64) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size(), info.Sys().(*syscall.Stat_t).Blocks * 512
	}
	for _, size := range []int{100, 3 << 20} {
		writeFiles(t, g.dir, map[string][]byte{filepath.Join(MemberSubdir, "member", "snap", "db"): make([]byte, size)})
		g.allocateAhead()
		if length, allocated := blocks(); length != int64(size) || allocated < int64(size)+g.headroomSize {
			t.Errorf("%d bytes are allocated of a file of %d", allocated, length)
		}
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	g.allocatedLen = g.headroomSize // as for this length
	g.allocateAhead()
	if _, allocated := blocks(); allocated > 0 {
		t.Error("it was allocated twice")
	}
	g.allocatedLen, g.headroomSize = 0, endless
	g.allocateAhead()
	if g.allocatedLen != 0 {
		t.Error("a disk has room for everything")
	}
	read, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	if err := preallocate(read, 0, 1); !errors.Is(err, syscall.EBADF) {
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
		case cause := <-g.restartReason:
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
		"no next log file": {
			prepare: (*diskGuard).recordSegmentFailure, want: "the next log file could not be allocated",
		},
		"the disk is full": {prepare: func(g *diskGuard) { g.failure.err = errFake }, full: true},
		"a moment ago":     {prepare: func(g *diskGuard) { g.failure.err, g.lastProbe = errFake, time.Now() }},
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
		g.requestRestart(tc.full)
		if got := asked(g); got != tc.want || mark(g) != tc.mark {
			t.Errorf("%s: asked for with %q, mark %q, want %q, %q", name, got, mark(g), tc.want, tc.mark)
		}
		g.lastProbe = time.Time{}
		if g.requestRestart(tc.full); tc.want != "" && asked(g) != "" {
			t.Errorf("%s: asked for twice", name)
		}
		if _, err := os.Stat(filepath.Join(g.dir, probeFile)); err == nil {
			t.Errorf("%s: the probe is still there", name)
		}
	}
	g := newTestGuard(t)
	if _, err := syncsOf(t, g.dir, 0, g.probeWrite); !errors.Is(err, errSync) {
		t.Errorf("a probe that cannot be synced: %v", err)
	}
}

// TestGuardRuns: the guard does all of its work while the store is open.
func TestGuardRuns(t *testing.T) {
	g := newTestGuard(t)
	writeFiles(t, g.dir, map[string][]byte{filepath.Join(MemberSubdir, "member", "snap", "db"): nil})
	g.failure.err = errFake
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.run(ctx)
	if g.allocatedLen != g.headroomSize || !g.restarting || !g.hasReserve() {
		t.Errorf("allocated %d, restarting %t, a reserve %t", g.allocatedLen, g.restarting, g.hasReserve())
	}
}
