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
	fanCame = unix.FAN_CREATE | unix.FAN_MOVED_TO | unix.FAN_CLOSE_WRITE | unix.FAN_ATTRIB
	fanLeft = unix.FAN_DELETE | unix.FAN_MOVED_FROM
	fanMask = fanCame | fanLeft | unix.FAN_ONDIR

	fanBuffer  = 128 << 10
	fanFolders = 4096 // directories whose paths are cached
)

// fanotifyWatcher watches whole file systems by fanotify. After start one goroutine does all work.
type fanotifyWatcher struct {
	s       *scope
	news    *changeBuffer
	fd      int
	changed int // the mount table, for poll
	calls   flushRequests
	leave   atomic.Bool // stop was called
	ended   chan struct{}
	low     *partial // for file systems that refuse
	own     int32
	denied  bool // the process lacks privileges
	buf     []byte

	t       *table
	systems map[[fanFsid]byte]*fanSystem
	paths   *cache[[]string] // handle of a directory -> its paths
	anchors map[string]int   // mount point -> an open file there, while a queue is read

	mu   sync.Mutex
	said []Mount
}

// fanSystem is a watched file system.
type fanSystem struct {
	fsid      [fanFsid]byte
	mounts    []mounted // all visible ones
	snapshots bool      // directories may appear with content, without a move
}

func openFan(s *scope, news *changeBuffer) (_ source, err error) {
	f := &fanotifyWatcher{
		s: s, news: news, own: int32(os.Getpid()), ended: make(chan struct{}), buf: make([]byte, fanBuffer),
		paths: newCache[[]string](fanFolders), fd: -1, changed: -1, calls: newFlushRequests(),
	}
	defer func() {
		if err != nil {
			f.release()
			if f.low != nil {
				f.low.release()
			}
		}
	}()
	flags := uint(unix.FAN_CLASS_NOTIF | unix.FAN_REPORT_DFID_NAME | unix.FAN_NONBLOCK | unix.FAN_CLOEXEC)
	if f.fd, err = unix.FanotifyInit(flags, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_LARGEFILE); err != nil {
		f.fd = -1
		return nil, os.NewSyscallError("fanotify_init", err)
	}
	if f.calls.wake, err = newSignal(); err != nil {
		return nil, err
	}
	if f.changed, err = openMounts(); err != nil {
		return nil, err
	}
	if f.t, err = readMounts(); err != nil {
		return nil, err
	}
	if f.low, err = newPartial(s, news, true); err != nil {
		return nil, err
	}
	refused := f.mark()
	if f.denied {
		return nil, fmt.Errorf("marks of whole file systems: %w", unix.EPERM)
	}
	return f, f.low.set(f.t, refused)
}

// mark sets a mark on every file system with a part below the roots. It returns the IDs of the
// mounts that refuse, with the reason.
func (f *fanotifyWatcher) mark() map[int]string {
	f.systems = map[[fanFsid]byte]*fanSystem{}
	refused := map[int]string{}
	var said []Mount
	for _, m := range f.t.visible() {
		if !f.s.relevant(f.t, m) {
			continue
		}
		if why, ok := elsewhere[m.kind]; ok && !f.s.owns(f.t, m) {
			said = append(said, Mount{m.point, m.kind, None, why})
			continue
		}
		fsid, err := f.markOne(m)
		f.denied = f.denied || errors.Is(err, unix.EPERM)
		if err != nil {
			refused[m.id] = err.Error()
			continue
		}
		sys := f.systems[fsid]
		if sys == nil {
			sys = &fanSystem{fsid: fsid, snapshots: m.kind == "btrfs" || m.kind == "bcachefs"}
			f.systems[fsid] = sys
		}
		sys.mounts = append(sys.mounts, m)
		said = append(said, Mount{m.point, m.kind, Fanotify, ""})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = said
	return refused
}

// markOne marks one file system. Those in user space are not even asked: they may never answer.
func (f *fanotifyWatcher) markOne(m mounted) (fsid [fanFsid]byte, err error) {
	if strings.HasPrefix(m.kind, "fuse") {
		return fsid, errors.New("a file system in user space")
	}
	if _, ok := elsewhere[m.kind]; ok {
		return fsid, errors.New("changes are made elsewhere")
	}
	var st unix.Statfs_t
	if err := unix.Statfs(m.point, &st); err != nil {
		return fsid, os.NewSyscallError("statfs", err)
	}
	err = unix.FanotifyMark(f.fd, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, fanMask, unix.AT_FDCWD, m.point)
	if err != nil {
		return fsid, os.NewSyscallError("fanotify_mark", err)
	}
	return fsidKey(st.Fsid.Val), nil
}

// start runs until stop.
func (f *fanotifyWatcher) start() {
	f.low.start()
	go func() {
		defer close(f.ended)
		if err := f.loop(); err != nil {
			f.s.Log.Error("Watching ended.", "method", string(Fanotify), "error", err)
			f.s.lost(f.news)
		}
	}()
}

// loop waits, reads, and rests.
func (f *fanotifyWatcher) loop() error {
	pause := restShort
	for {
		fds := []unix.PollFd{
			{Fd: int32(f.calls.wake), Events: unix.POLLIN},
			{Fd: int32(f.fd), Events: unix.POLLIN},
			{Fd: int32(f.changed), Events: unix.POLLPRI},
		}
		if err := await(fds); err != nil {
			return err
		}
		f.calls.wake.clear()
		if f.leave.Load() {
			return nil
		}
		waiting := f.calls.take()
		if fds[2].Revents != 0 {
			f.remount()
		}
		n, err := f.read(waiting.queued(f.fd))
		if err != nil {
			return err
		}
		waiting.answer()
		pause = rest(pause, n)
		f.calls.rest(pause)
	}
}

// remount reads the mount table again.
func (f *fanotifyWatcher) remount() {
	t, err := readMounts()
	if err != nil {
		f.s.Log.Error("The table of mounts cannot be read.", "error", err)
		return
	}
	points := changed(f.t, t)
	if len(points) == 0 {
		return
	}
	f.t = t
	f.paths.clear()
	f.low.later(t, f.mark())
	for _, p := range points {
		m, ok := t.owner(p)
		if _, left := elsewhere[m.kind]; ok && left && m.point == p {
			continue
		}
		f.s.told(f.news, p, Folder)
	}
}

// read empties the kernel's queue, or reads at least the given number of bytes, and returns the
// number of events.
func (f *fanotifyWatcher) read(least int) (int, error) {
	f.anchors = map[string]int{}
	defer func() {
		for _, fd := range f.anchors {
			closeFile(fd)
		}
	}()
	for count := 0; ; {
		n, err := unix.Read(f.fd, f.buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return count, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return count, os.NewSyscallError("read", err)
		}
		least -= n
		got, err := f.events(f.buf[:n])
		count += got
		if err != nil {
			f.s.Log.Error("read changed files failed", "error", err)
			f.s.lost(f.news)
		}
		if count > 4*restMany && least <= 0 {
			return count, nil // mounts may have changed since
		}
	}
}

func (f *fanotifyWatcher) events(b []byte) (count int, err error) {
	for len(b) > 0 {
		var e fanEvent
		if e, b, err = nextFanEvent(b); err != nil {
			return count, err
		}
		count++
		f.event(&e)
	}
	return count, nil
}

// event reports one event, unless it is unwanted.
func (f *fanotifyWatcher) event(e *fanEvent) {
	if e.fd >= 0 {
		closeFile(int(e.fd))
	}
	folder := e.mask&unix.FAN_ONDIR != 0
	switch {
	case e.mask&unix.FAN_Q_OVERFLOW != 0:
		f.s.Log.Warn("More happened than the kernel could remember: everything is to be looked at again.")
		f.paths.clear()
		f.s.lost(f.news)
		return
	case folder && e.mask&(fanLeft|unix.FAN_MOVED_TO) != 0:
		defer f.paths.clear()
	case folder && e.mask&unix.FAN_CREATE == 0:
		return
	}
	if e.pid == f.own || len(e.handle) == 0 || string(e.name) == "." {
		return
	}
	if !folder && !f.s.Wants(string(e.name)) {
		return
	}
	if folder && e.mask&(fanLeft|unix.FAN_MOVED_TO) == 0 && !f.snapshots(e.handle) {
		return // a new directory is empty, and what comes into it is reported
	}
	for _, dir := range f.resolve(e.handle) {
		f.tell(join(dir, string(e.name)), e.mask)
	}
}

// tell adds the change of a path. A path that was removed may exist again: the kernel merges events
// of one process about one name at the position of the first, before what another process did in
// between. The current state decides; a later change has an event that is still to be read.
func (f *fanotifyWatcher) tell(path string, mask uint64) {
	left := mask&fanLeft != 0
	if left {
		_, err := os.Lstat(path)
		left = errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
	}
	switch {
	case left && mask&unix.FAN_ONDIR != 0:
		f.s.told(f.news, path, Gone)
	case mask&unix.FAN_ONDIR != 0:
		f.s.told(f.news, path, Folder)
	case left:
		f.news.add(path, Gone)
	default:
		f.news.add(path, File)
	}
}

func (f *fanotifyWatcher) snapshots(handle []byte) bool {
	fsid, _, _, ok := handleParts(handle)
	sys := f.systems[fsid]
	return ok && sys != nil && sys.snapshots
}

// resolve returns the paths of a directory below the roots, none if it is gone: then the queue also
// has the event of its removal, or that of a directory above it.
func (f *fanotifyWatcher) resolve(handle []byte) []string {
	if paths, ok := f.paths.get(handle); ok {
		return paths
	}
	fsid, kind, data, ok := handleParts(handle)
	sys := f.systems[fsid]
	if !ok || sys == nil {
		return nil
	}
	inner, err := f.locate(sys, unix.NewFileHandle(kind, data))
	if err != nil {
		f.s.Log.Warn("A directory in which something changed is not found.", "error", err)
		for _, m := range sys.mounts {
			f.s.told(f.news, m.point, Folder)
		}
		return nil
	}
	var paths []string
	if inner != "" {
		paths = f.seenAt(sys, inner)
	}
	f.paths.put(handle, paths)
	return paths
}

// seenAt returns the paths at which a directory of a file system is visible: not where another file
// system is mounted over it.
func (f *fanotifyWatcher) seenAt(sys *fanSystem, inner string) []string {
	var out []string
	for _, m := range sys.mounts {
		if !within(m.root, inner) {
			continue
		}
		path := descend(m.point, inner[len(m.root):])
		if o, ok := f.t.owner(path); ok && o.id == m.id && f.s.touches(path) {
			out = append(out, path)
		}
	}
	return out
}

// locate returns the path of a directory within its file system, "" if it is gone or not visible. A
// mount shows what is below its own root only, so that several are tried.
func (f *fanotifyWatcher) locate(sys *fanSystem, h unix.FileHandle) (string, error) {
	tried := map[string]bool{}
	mounts := slices.Clone(sys.mounts)
	slices.SortStableFunc(mounts, func(a, b mounted) int { return cmp.Compare(len(a.root), len(b.root)) })
	for _, m := range mounts {
		if tried[m.root] {
			continue
		}
		tried[m.root] = true
		path, err := f.openHandle(sys, m.point, h)
		switch {
		case errors.Is(err, unix.ESTALE):
			return "", nil
		case err != nil:
			return "", err
		}
		if within(m.point, path) {
			return descend(m.root, path[len(m.point):]), nil
		}
	}
	return "", nil
}

// openHandle returns the path of a directory as seen through a mount. It fails with ESTALE for a
// directory that is gone.
func (f *fanotifyWatcher) openHandle(sys *fanSystem, point string, h unix.FileHandle) (string, error) {
	anchor, err := f.anchor(sys, point)
	if err != nil {
		return "", err
	}
	fd, err := unix.OpenByHandleAt(anchor, h, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return "", os.NewSyscallError("open_by_handle_at", err)
	}
	defer closeFile(fd)
	return pathOf(fd)
}

// anchor returns an open file of a file system. It is closed once the queue is read, so that it
// does not block an unmount.
func (f *fanotifyWatcher) anchor(sys *fanSystem, point string) (int, error) {
	if fd, ok := f.anchors[point]; ok {
		return fd, nil
	}
	fd, err := unix.Open(point, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: point, Err: err}
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil || fsidKey(st.Fsid.Val) != sys.fsid {
		closeFile(fd)
		return -1, fmt.Errorf("something else is mounted at %s now", point)
	}
	f.anchors[point] = fd
	return fd, nil
}

// fsidKey returns the ID of a file system as it is in events.
func fsidKey(val [2]int32) (key [fanFsid]byte) {
	binary.NativeEndian.PutUint32(key[:], uint32(val[0]))
	binary.NativeEndian.PutUint32(key[4:], uint32(val[1]))
	return key
}

// descend adds the rest of a path to a directory.
func descend(folder, rest string) string {
	rest = strings.Trim(rest, "/")
	if rest == "" {
		return folder
	}
	return join(folder, rest)
}

// pathOf returns the path of an open file, or ESTALE if it was removed.
func pathOf(fd int) (string, error) {
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
	out := slices.Clone(f.said)
	f.mu.Unlock()
	out = append(out, f.low.mounts()...)
	slices.SortStableFunc(out, func(a, b Mount) int { return cmp.Compare(a.Path, b.Path) })
	return out
}

func (f *fanotifyWatcher) flush(ctx context.Context) error {
	if err := f.calls.ask(ctx, f.ended); err != nil {
		return err
	}
	return f.low.flush(ctx)
}

func (f *fanotifyWatcher) stop() error {
	f.leave.Store(true)
	f.calls.raise()
	<-f.ended
	f.release()
	return f.low.stop()
}

// release closes its own file descriptors.
func (f *fanotifyWatcher) release() {
	for _, fd := range []int{f.fd, f.changed, int(f.calls.wake)} {
		if fd >= 0 {
			closeFile(fd)
		}
	}
}
