package watch

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	fanAppeared = unix.FAN_CREATE | unix.FAN_MOVED_TO | unix.FAN_CLOSE_WRITE | unix.FAN_ATTRIB
	fanRemoved  = unix.FAN_DELETE | unix.FAN_MOVED_FROM
	fanMask     = fanAppeared | fanRemoved | unix.FAN_ONDIR

	fanBufferSize = 128 << 10
	fanCachedDirs = 4096 // directories whose paths are cached
)

// fanotifyWatcher watches whole file systems by fanotify. After start one goroutine does all work.
type fanotifyWatcher struct {
	cfg          *watchConfig
	buffer       *changeBuffer
	fd           int
	mountsFD     int // the mount table, for poll
	flushes      flushRequests
	stopping     atomic.Bool // stop was called
	ended        chan struct{}
	partial      *partialWatcher // for file systems that refuse
	ownPID       int32
	unprivileged bool // the process lacks privileges
	readBuf      []byte

	mountTable  *mountTable
	fileSystems map[[fanFSIDSize]byte]*fanFileSystem
	pathCache   *cache[[]string] // handle of a directory -> its paths
	anchorFDs   map[string]int   // mount point -> an open file there, while a queue is read

	mu             sync.Mutex
	reportedMounts []Mount
}

// fanFileSystem is a watched file system.
type fanFileSystem struct {
	fsid         [fanFSIDSize]byte
	mounts       []mountEntry // all visible ones
	hasSnapshots bool         // directories may appear with content, without a move
}

func openFan(s *watchConfig, buffer *changeBuffer) (_ eventSource, err error) {
	f := &fanotifyWatcher{
		cfg: s, buffer: buffer, ownPID: int32(os.Getpid()), ended: make(chan struct{}),
		readBuf:   make([]byte, fanBufferSize),
		pathCache: newCache[[]string](fanCachedDirs), fd: -1, mountsFD: -1, flushes: newFlushRequests(),
	}
	defer func() {
		if err != nil {
			f.closeFDs()
			if f.partial != nil {
				f.partial.closeFDs()
			}
		}
	}()
	flags := uint(unix.FAN_CLASS_NOTIF | unix.FAN_REPORT_DFID_NAME | unix.FAN_NONBLOCK | unix.FAN_CLOEXEC)
	if f.fd, err = unix.FanotifyInit(flags, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_LARGEFILE); err != nil {
		f.fd = -1
		return nil, os.NewSyscallError("fanotify_init", err)
	}
	if f.flushes.wakeSignal, err = newWakeFD(); err != nil {
		return nil, err
	}
	if f.mountsFD, err = openMounts(); err != nil {
		return nil, err
	}
	if f.mountTable, err = readMounts(); err != nil {
		return nil, err
	}
	if f.partial, err = newPartial(s, buffer, true); err != nil {
		return nil, err
	}
	refused := f.markAll()
	if f.unprivileged {
		return nil, fmt.Errorf("watch whole file systems with fanotify: %w", unix.EPERM)
	}
	return f, f.partial.setMounts(f.mountTable, refused)
}

// markAll sets a mark on every file system with a part below the roots. It returns the IDs of the
// mounts that refuse, with the reason.
func (f *fanotifyWatcher) markAll() map[int]string {
	f.fileSystems = map[[fanFSIDSize]byte]*fanFileSystem{}
	refused := map[int]string{}
	var said []Mount
	for _, m := range f.mountTable.visibleMounts() {
		if !f.cfg.touchesMount(f.mountTable, m) {
			continue
		}
		if why, ok := excludedFSTypes[m.fsType]; ok && !f.cfg.isRootMount(f.mountTable, m) {
			said = append(said, Mount{m.mountPoint, m.fsType, None, why})
			continue
		}
		fsid, err := f.markOne(m)
		f.unprivileged = f.unprivileged || errors.Is(err, unix.EPERM)
		if err != nil {
			refused[m.id] = err.Error()
			continue
		}
		sys := f.fileSystems[fsid]
		if sys == nil {
			sys = &fanFileSystem{fsid: fsid, hasSnapshots: m.fsType == "btrfs" || m.fsType == "bcachefs"}
			f.fileSystems[fsid] = sys
		}
		sys.mounts = append(sys.mounts, m)
		said = append(said, Mount{m.mountPoint, m.fsType, Fanotify, ""})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reportedMounts = said
	return refused
}

// markOne marks one file system. Those in user space are not even asked: they may never answer.
func (f *fanotifyWatcher) markOne(m mountEntry) (fsid [fanFSIDSize]byte, err error) {
	if strings.HasPrefix(m.fsType, "fuse") {
		return fsid, errors.New("file systems in user space (FUSE) cannot be watched")
	}
	if _, ok := excludedFSTypes[m.fsType]; ok {
		return fsid, errors.New("the kernel reports no changes of this type of file system")
	}
	var st unix.Statfs_t
	if err := unix.Statfs(m.mountPoint, &st); err != nil {
		return fsid, os.NewSyscallError("statfs", err)
	}
	err = unix.FanotifyMark(f.fd, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, fanMask, unix.AT_FDCWD, m.mountPoint)
	if err != nil {
		return fsid, os.NewSyscallError("fanotify_mark", err)
	}
	return fsidKey(st.Fsid.Val), nil
}

// start runs until stop.
func (f *fanotifyWatcher) start() {
	f.partial.start()
	go func() {
		defer close(f.ended)
		if err := f.loop(); err != nil {
			f.cfg.Log.Error("File watcher stopped.", "method", string(Fanotify), "error", err)
			f.cfg.addLostChanges(f.buffer)
		}
	}()
}

// loop waits, reads, and rests.
func (f *fanotifyWatcher) loop() error {
	pause := restShort
	for {
		fds := []unix.PollFd{
			{Fd: int32(f.flushes.wakeSignal), Events: unix.POLLIN},
			{Fd: int32(f.fd), Events: unix.POLLIN},
			{Fd: int32(f.mountsFD), Events: unix.POLLPRI},
		}
		if err := waitReady(fds); err != nil {
			return err
		}
		f.flushes.wakeSignal.clear()
		if f.stopping.Load() {
			return nil
		}
		waiting := f.flushes.takeWaiters()
		if fds[2].Revents != 0 {
			f.reloadMounts()
		}
		n, err := f.readQueue(waiting.queuedBytes(f.fd))
		if err != nil {
			return err
		}
		waiting.wakeAll()
		pause = restTime(pause, n)
		f.flushes.restUntilRequest(pause)
	}
}

// reloadMounts reads the mount table again.
func (f *fanotifyWatcher) reloadMounts() {
	t, err := readMounts()
	if err != nil {
		f.cfg.Log.Error("Reading the mount table failed.", "error", err)
		return
	}
	points := changedPoints(f.mountTable, t)
	if len(points) == 0 {
		return
	}
	f.mountTable = t
	f.pathCache.clear()
	f.partial.queueTable(t, f.markAll())
	for _, p := range points {
		m, ok := t.mountOf(p)
		if _, left := excludedFSTypes[m.fsType]; ok && left && m.mountPoint == p {
			continue
		}
		f.cfg.addDirChange(f.buffer, p, DirChanged)
	}
}

// readQueue empties the kernel's queue, or reads at least the given number of bytes, and returns the
// number of events.
func (f *fanotifyWatcher) readQueue(least int) (int, error) {
	f.anchorFDs = map[string]int{}
	defer func() {
		for _, fd := range f.anchorFDs {
			closeFD(fd)
		}
	}()
	for count := 0; ; {
		n, err := unix.Read(f.fd, f.readBuf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return count, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return count, os.NewSyscallError("read", err)
		}
		least -= n
		got, err := f.handleEvents(f.readBuf[:n])
		count += got
		if err != nil {
			f.cfg.Log.Error("Decoding a fanotify event failed; all watched directories are scanned again.", "error",
				err)
			f.cfg.addLostChanges(f.buffer)
		}
		if count > 4*manyEvents && least <= 0 {
			return count, nil // mounts may have changed since
		}
	}
}

func (f *fanotifyWatcher) handleEvents(b []byte) (count int, err error) {
	for len(b) > 0 {
		var e fanEvent
		if e, b, err = nextFanEvent(b); err != nil {
			return count, err
		}
		count++
		f.handleEvent(&e)
	}
	return count, nil
}

// handleEvent reports one event, unless it is unwanted.
func (f *fanotifyWatcher) handleEvent(e *fanEvent) {
	if e.fd >= 0 {
		closeFD(int(e.fd))
	}
	isDir := e.mask&unix.FAN_ONDIR != 0
	switch {
	case e.mask&unix.FAN_Q_OVERFLOW != 0:
		f.cfg.Log.Warn("The fanotify queue overflowed; all watched directories are scanned again.")
		f.pathCache.clear()
		f.cfg.addLostChanges(f.buffer)
		return
	case isDir && e.mask&(fanRemoved|unix.FAN_MOVED_TO) != 0:
		defer f.pathCache.clear()
	case isDir && e.mask&unix.FAN_CREATE == 0:
		return
	}
	if e.pid == f.ownPID || len(e.handle) == 0 || string(e.name) == "." {
		return
	}
	if !isDir && !f.cfg.WantsFile(string(e.name)) {
		return
	}
	if isDir && e.mask&(fanRemoved|unix.FAN_MOVED_TO) == 0 && !f.mayHaveSnapshots(e.handle) {
		return // a new directory is empty, and what comes into it is reported
	}
	for _, dir := range f.resolveHandle(e.handle) {
		f.addChange(joinPath(dir, string(e.name)), e.mask)
	}
}

// addChange adds the change of a path. A path that was removed may exist again: the kernel merges events
// of one process about one name at the position of the first, before what another process did in
// between. The current state decides; a later change has an event that is still to be read.
func (f *fanotifyWatcher) addChange(path string, mask uint64) {
	left := mask&fanRemoved != 0
	if left {
		_, err := os.Lstat(path)
		left = errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
	}
	switch {
	case left && mask&unix.FAN_ONDIR != 0:
		f.cfg.addDirChange(f.buffer, path, Removed)
	case mask&unix.FAN_ONDIR != 0:
		f.cfg.addDirChange(f.buffer, path, DirChanged)
	case left:
		f.buffer.add(path, Removed)
	default:
		f.buffer.add(path, FileChanged)
	}
}

func (f *fanotifyWatcher) mayHaveSnapshots(handle []byte) bool {
	fsid, _, _, ok := splitHandle(handle)
	sys := f.fileSystems[fsid]
	return ok && sys != nil && sys.hasSnapshots
}

// resolveHandle returns the paths of a directory below the roots, none if it is gone: then the queue also
// has the event of its removal, or that of a directory above it.
func (f *fanotifyWatcher) resolveHandle(handle []byte) []string {
	if paths, ok := f.pathCache.get(handle); ok {
		return paths
	}
	fsid, kind, data, ok := splitHandle(handle)
	sys := f.fileSystems[fsid]
	if !ok || sys == nil {
		return nil
	}
	inner, err := f.locateDir(sys, unix.NewFileHandle(kind, data))
	if err != nil {
		f.cfg.Log.Warn("Finding the directory of a changed file failed.", "error", err)
		for _, m := range sys.mounts {
			f.cfg.addDirChange(f.buffer, m.mountPoint, DirChanged)
		}
		return nil
	}
	var paths []string
	if inner != "" {
		paths = f.visiblePaths(sys, inner)
	}
	f.pathCache.put(handle, paths)
	return paths
}

// visiblePaths returns the paths at which a directory of a file system is visible: not where another file
// system is mounted over it.
func (f *fanotifyWatcher) visiblePaths(sys *fanFileSystem, inner string) []string {
	var out []string
	for _, m := range sys.mounts {
		if !isWithin(m.root, inner) {
			continue
		}
		path := joinRelative(m.mountPoint, inner[len(m.root):])
		if o, ok := f.mountTable.mountOf(path); ok && o.id == m.id && f.cfg.touchesRoots(path) {
			out = append(out, path)
		}
	}
	return out
}

// locateDir returns the path of a directory within its file system, "" if it is gone or not visible. A
// mount shows what is below its own root only, so that several are tried.
func (f *fanotifyWatcher) locateDir(sys *fanFileSystem, h unix.FileHandle) (string, error) {
	tried := map[string]bool{}
	mounts := slices.Clone(sys.mounts)
	slices.SortStableFunc(mounts, func(a, b mountEntry) int { return cmp.Compare(len(a.root), len(b.root)) })
	for _, m := range mounts {
		if tried[m.root] {
			continue
		}
		tried[m.root] = true
		path, err := f.openHandle(sys, m.mountPoint, h)
		switch {
		case errors.Is(err, unix.ESTALE):
			return "", nil
		case err != nil:
			return "", err
		}
		if isWithin(m.mountPoint, path) {
			return joinRelative(m.root, path[len(m.mountPoint):]), nil
		}
	}
	return "", nil
}

// openHandle returns the path of a directory as seen through a mount. It fails with ESTALE for a
// directory that is gone.
func (f *fanotifyWatcher) openHandle(sys *fanFileSystem, point string, h unix.FileHandle) (string, error) {
	anchor, err := f.openAnchor(sys, point)
	if err != nil {
		return "", err
	}
	fd, err := unix.OpenByHandleAt(anchor, h, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return "", os.NewSyscallError("open_by_handle_at", err)
	}
	defer closeFD(fd)
	return pathOfFD(fd)
}

// openAnchor returns an open file of a file system. It is closed once the queue is read, so that it
// does not block an unmount.
func (f *fanotifyWatcher) openAnchor(sys *fanFileSystem, point string) (int, error) {
	if fd, ok := f.anchorFDs[point]; ok {
		return fd, nil
	}
	fd, err := unix.Open(point, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: point, Err: err}
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil || fsidKey(st.Fsid.Val) != sys.fsid {
		closeFD(fd)
		return -1, fmt.Errorf("another file system is mounted at %s now", point)
	}
	f.anchorFDs[point] = fd
	return fd, nil
}

// fsidKey returns the ID of a file system as it is in events.
func fsidKey(val [2]int32) (key [fanFSIDSize]byte) {
	binary.NativeEndian.PutUint32(key[:], uint32(val[0]))
	binary.NativeEndian.PutUint32(key[4:], uint32(val[1]))
	return key
}

// joinRelative adds the rest of a path to a directory.
func joinRelative(dir, rest string) string {
	rest = strings.Trim(rest, "/")
	if rest == "" {
		return dir
	}
	return joinPath(dir, rest)
}

// pathOfFD returns the path of an open file, or ESTALE if it was removed.
func pathOfFD(fd int) (string, error) {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return "", err
	}
	if strings.HasSuffix(path, " (deleted)") {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Nlink == 0 {
			return "", unix.ESTALE
		}
	}
	return path, nil
}

func (f *fanotifyWatcher) mounts() []Mount {
	f.mu.Lock()
	out := slices.Clone(f.reportedMounts)
	f.mu.Unlock()
	out = append(out, f.partial.mounts()...)
	slices.SortStableFunc(out, func(a, b Mount) int { return cmp.Compare(a.Path, b.Path) })
	return out
}

func (f *fanotifyWatcher) flush(ctx context.Context) error {
	if err := f.flushes.request(ctx, f.ended); err != nil {
		return err
	}
	return f.partial.flush(ctx)
}

func (f *fanotifyWatcher) stop() error {
	f.stopping.Store(true)
	f.flushes.notify()
	<-f.ended
	f.closeFDs()
	return f.partial.stop()
}

// closeFDs closes its own file descriptors.
func (f *fanotifyWatcher) closeFDs() {
	for _, fd := range []int{f.fd, f.mountsFD, int(f.flushes.wakeSignal)} {
		if fd >= 0 {
			closeFD(fd)
		}
	}
}
