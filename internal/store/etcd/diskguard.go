package etcd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"
)

// Limits of the free space of a store's file system, in bytes. Small file systems get a share
// instead.
const (
	refuseBelowBytes  = 128 << 20 // free: changes are refused
	resumeMarginBytes = 32 << 20  // above refuseBelowBytes: changes are accepted again
	maxReserveBytes   = 64 << 20  // of a file that is freed when the disk is full
	maxHeadroomBytes  = 32 << 20  // of the database's file that are allocated before they are used

	refuseDivisor, reserveDivisor, headroomDivisor, segmentDivisor = 8, 16, 32, 16 // parts of the file system, at most

	guardInterval = 100 * time.Millisecond
	probeInterval = time.Second // after a failure
)

// logFileBytes is the length of etcd's log files, which are allocated before they are used. Tests make it smaller.
var logFileBytes int64 = 64 * 1000 * 1000

// Files next to the member's.
const (
	reserveFile  = "reserve"  // its space is freed when the disk is full, for what etcd has to write nevertheless
	unsyncedFile = "unsynced" // the member failed: its files may be in memory only, although they can be read
	probeFile    = "probe"
)

const diskFullMessage = "The disk of the data directory is full: changes are refused until there is free space"

func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// diskGuard keeps etcd from running into a full disk. It refuses changes while there is little free
// space, allocates the database's file ahead of its use, keeps a reserve, and detects when a failed
// member can continue.
type diskGuard struct {
	dir           string // of the store
	log           *slog.Logger
	failure       *memberFailure
	restartReason chan error

	refuseBelow, resumeAbove, reserveSize, headroomSize int64

	mu            sync.Mutex
	refusing      bool
	segmentFailed bool // etcd could not allocate its next log file, and does not try again
	restarting    bool
	allocatedLen  int64 // length of the database's file up to which it is allocated
	lastProbe     time.Time
}

var segmentMu sync.Mutex // guards wal.SegmentSizeBytes: several stores may open at the same time

// newDiskGuard checks the file system and frees the reserve when the store could not be opened
// otherwise.
func newDiskGuard(dir string, log *slog.Logger, f *memberFailure) (*diskGuard, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	_, total, err := diskSpace(dir)
	if err != nil {
		return nil, err
	}
	g := &diskGuard{
		dir: dir, log: log, failure: f, restartReason: make(chan error, 1),
		refuseBelow:  min(refuseBelowBytes, total/refuseDivisor),
		reserveSize:  min(maxReserveBytes, total/reserveDivisor),
		headroomSize: min(maxHeadroomBytes, total/headroomDivisor),
	}
	g.resumeAbove = g.refuseBelow + min(resumeMarginBytes, g.refuseBelow/4)
	segmentMu.Lock()
	if segment := min(logFileBytes, total/segmentDivisor); segment != wal.SegmentSizeBytes {
		wal.SegmentSizeBytes = segment // of a small file system, or of the one after it in a test
	}
	segmentMu.Unlock()
	g.checkSpace()
	return g, nil
}

// diskSpace returns how many bytes an ordinary user may still write, and the size of the file
// system.
func diskSpace(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, fmt.Errorf("get free space of %s: %w", dir, err)
	}
	unit := int64(st.Bsize)
	return int64(st.Bavail) * unit, int64(st.Blocks) * unit, nil
}

// checkWritable returns why a change is refused now; nil: it is accepted. It checks the file system each
// time: another program may have filled it since.
func (g *diskGuard) checkWritable() error {
	if g == nil {
		return nil
	}
	if err := g.failure.callError(); err != nil {
		return err
	}
	if g.checkSpace() {
		return refusalError(diskFullMessage, nil)
	}
	return nil
}

// checkSpace compares the free space with the limits, and reports whether changes are refused.
func (g *diskGuard) checkSpace() (refusing bool) {
	free, _, err := diskSpace(g.dir)
	if err != nil {
		return false // the member will report the error
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case free < g.refuseBelow:
		g.freeReserveLocked()
		if !g.refusing {
			g.log.Error("disk full: changes refused", "alarm", "store_full", "dir", g.dir, "free_bytes", free,
				"limit_bytes", g.refuseBelow)
		}
		g.refusing = true
	case free >= g.resumeAbove && (g.hasReserve() || free >= g.resumeAbove+g.reserveSize && g.ensureReserve()):
		if g.refusing {
			g.log.Warn("disk has free space again: changes accepted", "dir", g.dir, "free_bytes", free)
		}
		g.refusing = false
	}
	return g.refusing
}

// hasSpaceFor reports whether a file of so many bytes can be written without the store refusing changes
// afterwards.
func (g *diskGuard) hasSpaceFor(bytes int64) bool {
	if g == nil {
		return true
	}
	free, _, err := diskSpace(g.dir)
	return err != nil || free-bytes > g.resumeAbove
}

func (g *diskGuard) reservePath() string { return filepath.Join(g.dir, reserveFile) }

func (g *diskGuard) hasReserve() bool {
	info, err := os.Stat(g.reservePath())
	return err == nil && info.Size() > 0
}

// freeReserveLocked frees the reserve. It is emptied, not removed: that needs no space on any file system.
func (g *diskGuard) freeReserveLocked() {
	if err := os.Truncate(g.reservePath(), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.log.Warn("releasing the disk reserve failed", "error", err)
	}
}

// ensureReserve reports whether the reserve exists now, or is not possible on this file system.
func (g *diskGuard) ensureReserve() bool {
	file, err := os.OpenFile(g.reservePath(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		g.log.Warn("creating the disk reserve failed", "error", err)
		return true
	}
	defer func() { _ = file.Close() }()
	if err := preallocate(file, 0, g.reserveSize); isDiskFull(err) {
		_ = file.Truncate(0)
		return false
	}
	if err := file.Truncate(g.reserveSize); err != nil {
		g.log.Warn("creating the disk reserve failed", "error", err)
	}
	return true
}

// refusalMessage returns why changes are refused, as a sentence for users; empty: they are accepted.
func (g *diskGuard) refusalMessage() string {
	if g == nil {
		return ""
	}
	if s := g.failure.refusalMessage(); s != "" {
		return s
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refusing {
		return diskFullMessage
	}
	return ""
}

// run manages the disk until ctx ends.
func (g *diskGuard) run(ctx context.Context) {
	tick := time.NewTicker(guardInterval)
	defer tick.Stop()
	for {
		full := g.checkSpace()
		g.allocateAhead()
		g.requestRestart(full)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// allocateAhead allocates disk space for the database's file before etcd writes to it: bbolt
// extends the file with holes, so the disk could become full in the middle of a commit.
func (g *diskGuard) allocateAhead() {
	path := filepath.Join(g.dir, MemberSubdir, "member", "snap", "db")
	info, err := os.Stat(path)
	if err != nil || info.Size()+g.headroomSize == g.allocatedLen {
		return
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	if err := preallocate(file, 0, info.Size()+g.headroomSize); err == nil || errors.Is(err, errors.ErrUnsupported) {
		g.allocatedLen = info.Size() + g.headroomSize
	}
}

// recordSegmentFailure records that etcd could not allocate its next log file. etcd ends when it needs that
// file, however much space is free then, so the member has to be started again.
func (g *diskGuard) recordSegmentFailure() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.segmentFailed = true
}

// requestRestart requests a new process once the files can be written again after a failure.
func (g *diskGuard) requestRestart(full bool) {
	cause := g.failure.cause()
	g.mu.Lock()
	due := (cause != nil || g.segmentFailed) && !full && !g.restarting && time.Since(g.lastProbe) >= probeInterval
	if due {
		g.lastProbe = time.Now()
	}
	g.mu.Unlock()
	if !due || g.probeWrite() != nil {
		return
	}
	if cause == nil {
		cause = errors.New("the next log file could not be allocated")
	} else if err := writeSynced(filepath.Join(g.dir, unsyncedFile), []byte(cause.Error()+"\n")); err != nil {
		return
	}
	g.mu.Lock()
	g.restarting = true
	g.mu.Unlock()
	g.restartReason <- cause
}

// probeWrite writes as much as etcd has to, and reports whether that works.
func (g *diskGuard) probeWrite() error {
	path := filepath.Join(g.dir, probeFile)
	err := writeSynced(path, make([]byte, 64<<10))
	return errors.Join(err, os.Remove(path))
}

// syncFile is fsync of a file or directory. Tests replace it.
var syncFile = (*os.File).Sync

func writeSynced(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, syncFile(file), file.Close())
}

// RestartNeeded returns a channel that delivers one time the reason why the store has to be opened by a
// new process: its files could not be written, and can be now. Until then the tables can be read,
// and changes are refused.
func (b *Backend) RestartNeeded() <-chan error {
	if b.diskGuard == nil {
		return nil
	}
	return b.diskGuard.restartReason
}

// RefusalMessage returns why changes are refused, as a sentence for users; empty: they are accepted.
func (b *Backend) RefusalMessage() string {
	if s := b.diskGuard.refusalMessage(); s != "" {
		return s
	}
	b.maintainer.mu.Lock()
	defer b.maintainer.mu.Unlock()
	if b.maintainer.refusing {
		return fullMessage
	}
	return ""
}
