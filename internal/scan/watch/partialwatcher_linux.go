package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// partialWatcher watches file systems that cannot be watched as a whole: by inotify the package
// directories, by fanotify, where it is permitted at all, the files that are written, and by
// polling the rest. Without privileges it is the only method; with them it watches the file systems
// that refuse a mark. After start one goroutine does all work, apart from the one that watches
// whole file systems: this one may hang on a file system in user space.
type partialWatcher struct {
	cfg        *watchConfig
	buffer     *changeBuffer
	isFallback bool
	writtenFD  int // fanotify group; below zero if not permitted
	mountsFD   int // the mount table, for poll; below zero for a fallback, which is notified
	flushes    flushRequests
	ended      chan struct{}
	poller     *poller
	ownPID     int32
	readBuf    []byte

	mountTable    *mountTable
	partialMounts map[int]string // id of a mount -> why it is not watched as a whole
	trees         *inotifyTrees

	mu             sync.Mutex
	reportedMounts []Mount
	nextTable      *mountTable    // to be used next, with
	nextMounts     map[int]string // these
	stopping       bool
}

func openPartial(s *watchConfig, buffer *changeBuffer) (eventSource, error) {
	p, err := newPartial(s, buffer, false)
	if err != nil {
		return nil, err
	}
	t, err := readMounts()
	if err == nil {
		err = p.setMounts(t, p.allMounts(t))
	}
	if err != nil {
		p.closeFDs()
		return nil, err
	}
	return p, nil
}

func newPartial(s *watchConfig, buffer *changeBuffer, fallback bool) (_ *partialWatcher, err error) {
	p := &partialWatcher{
		cfg: s, buffer: buffer, isFallback: fallback, writtenFD: -1, mountsFD: -1, flushes: newFlushRequests(),
		ownPID: int32(os.Getpid()),
		ended:  make(chan struct{}), poller: newPoller(s, buffer), readBuf: make([]byte, fanBufferSize/2),
	}
	defer func() {
		if err != nil {
			p.closeFDs()
		}
	}()
	if p.flushes.wakeSignal, err = newWakeFD(); err != nil {
		return nil, err
	}
	if p.trees, err = newInotifyTrees(s); err != nil {
		return nil, err
	}
	if !fallback {
		p.mountsFD, err = openMounts()
	}
	return p, err
}

// allMounts returns every mount with a part below the roots, for systems without a better method.
func (p *partialWatcher) allMounts(t *mountTable) map[int]string {
	mine := map[int]string{}
	for _, m := range t.visibleMounts() {
		_, left := excludedFSTypes[m.fsType]
		if p.cfg.isRootMount(t, m) || !left && p.cfg.touchesMount(t, m) {
			mine[m.id] = ""
		}
	}
	return mine
}

// setMounts begins to watch some mounts, and stops watching those that another method watches.
func (p *partialWatcher) setMounts(t *mountTable, mine map[int]string) error {
	var points []string
	if p.mountTable != nil {
		points = changedPoints(p.mountTable, t)
	}
	p.mountTable, p.partialMounts = t, mine
	p.trees.isOtherMount = func(path string) bool {
		i, ok := t.byPoint[path]
		if !ok {
			return false
		}
		_, ours := mine[t.mounts[i].id]
		return !ours
	}
	p.markWritten()
	for _, at := range points {
		p.trees.unwatchTree(at)
	}
	starts, polled := p.startDirs()
	p.trees.setTrees(starts)
	for _, at := range points {
		p.trees.rewatchTree(at)
		p.cfg.addDirChange(p.buffer, at, DirChanged)
	}
	p.trees.polledDirs = polled
	p.updatePolling()
	return nil
}

// startDirs returns the directories to watch, and those to poll: of file systems that change on other
// machines, which no kernel event reports.
func (p *partialWatcher) startDirs() (starts, polled []string) {
	for _, st := range p.cfg.startDirs() {
		if m, ok := p.mountTable.mountOf(st); ok {
			if _, ours := p.partialMounts[m.id]; !ours {
				continue
			}
			if _, far := excludedFSTypes[m.fsType]; far {
				polled = append(polled, st)
				continue
			}
		}
		starts = append(starts, st)
	}
	for _, m := range p.mountTable.visibleMounts() {
		_, ours := p.partialMounts[m.id]
		_, far := excludedFSTypes[m.fsType]
		inside := slices.ContainsFunc(p.cfg.startDirs(),
			func(st string) bool { return st != m.mountPoint && isWithin(st, m.mountPoint) })
		if ours && inside && !far {
			starts = append(starts, m.mountPoint)
		}
	}
	return starts, polled
}

// markWritten marks each mount for events of written files. Only a fallback may.
func (p *partialWatcher) markWritten() {
	if !p.isFallback || len(p.partialMounts) == 0 {
		return
	}
	if p.writtenFD < 0 {
		flags := uint(unix.FAN_CLASS_NOTIF | unix.FAN_NONBLOCK | unix.FAN_CLOEXEC)
		fd, err := unix.FanotifyInit(flags, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_LARGEFILE|unix.O_NOATIME)
		if err != nil {
			p.cfg.Log.Warn("Changed files on some file systems are not reported.", "error", err)
			return
		}
		p.writtenFD = fd
	}
	for id := range p.partialMounts {
		m := p.mountTable.mounts[p.mountTable.byID[id]]
		if _, far := excludedFSTypes[m.fsType]; far {
			continue
		}
		err := unix.FanotifyMark(p.writtenFD, unix.FAN_MARK_ADD|unix.FAN_MARK_MOUNT, unix.FAN_CLOSE_WRITE,
			unix.AT_FDCWD,
			m.mountPoint)
		if err != nil {
			p.cfg.Log.Warn("Changed files on a file system are not reported.", "mount", m.mountPoint, "error", err)
		}
	}
}

// updatePolling leaves to polling what inotify has no watches for, and updates the reported mounts.
func (p *partialWatcher) updatePolling() {
	rest := p.trees.listUnwatched()
	p.poller.setDirs(rest, p.trees.unwatchedReason(), p.trees.isOtherMount)
	starts := p.cfg.startDirs()
	var said []Mount
	for id, why := range p.partialMounts {
		m := p.mountTable.mounts[p.mountTable.byID[id]]
		if _, far := excludedFSTypes[m.fsType]; far {
			said = append(said, Mount{m.mountPoint, m.fsType, Poll, "changes are made on another machine"})
			continue
		}
		whole := slices.ContainsFunc(starts, func(st string) bool { return isWithin(st, m.mountPoint) })
		some := slices.ContainsFunc(starts, func(st string) bool { return isWithin(m.mountPoint, st) })
		method := Inotify
		var parts []string
		if why != "" {
			parts = append(parts, why)
		}
		switch {
		case whole:
		case p.writtenFD >= 0 && some:
			parts = append(parts, "written files are reported, and all changes in package directories")
			method = FanotifyWritten
		case p.writtenFD >= 0:
			parts = append(parts, "only written files are reported")
			method = FanotifyWritten
		case some:
			parts = append(parts, "only package directories are watched")
		default:
			parts = append(parts, "no packages are expected here")
			method = None
		}
		said = append(said, Mount{m.mountPoint, m.fsType, method, strings.Join(parts, ": ")})
	}
	if n := p.trees.deniedDirs; n > 0 {
		said = append(said, Mount{"", "", None, fmt.Sprintf("%d directories may not be read", n)})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reportedMounts = said
}

// queueTable makes the goroutine use another mount table.
func (p *partialWatcher) queueTable(t *mountTable, refused map[int]string) {
	p.mu.Lock()
	p.nextTable, p.nextMounts = t, refused
	p.mu.Unlock()
	p.flushes.notify()
}

// start runs until stop.
func (p *partialWatcher) start() {
	p.poller.start()
	go func() {
		defer close(p.ended)
		if err := p.loop(); err != nil {
			p.cfg.Log.Error("File watcher stopped.", "method", string(Inotify), "error", err)
			p.cfg.addLostChanges(p.buffer)
		}
	}()
}

// loop waits, reads, and rests.
func (p *partialWatcher) loop() error {
	pause := restShort
	for {
		fds := []unix.PollFd{
			{Fd: int32(p.flushes.wakeSignal), Events: unix.POLLIN},
			{Fd: int32(p.trees.fd), Events: unix.POLLIN},
			{Fd: int32(p.writtenFD), Events: unix.POLLIN}, // below zero is left out
			{Fd: int32(p.mountsFD), Events: unix.POLLPRI},
		}
		if err := waitReady(fds); err != nil {
			return err
		}
		if p.handleRequests() {
			return nil
		}
		waiting := p.flushes.takeWaiters()
		if fds[3].Revents != 0 {
			p.reloadMounts()
		}
		a, err := p.readInotify(waiting.queuedBytes(p.trees.fd))
		if err != nil {
			return err
		}
		b, err := p.readWritten(waiting.queuedBytes(p.writtenFD))
		if err != nil {
			return err
		}
		waiting.wakeAll()
		pause = restTime(pause, a+b)
		p.flushes.restUntilRequest(pause)
	}
}

// handleRequests handles requests of other goroutines, and reports whether to end.
func (p *partialWatcher) handleRequests() bool {
	p.flushes.wakeSignal.clear()
	p.mu.Lock()
	t, refused, leaving := p.nextTable, p.nextMounts, p.stopping
	p.nextTable = nil
	p.mu.Unlock()
	if t != nil && !leaving {
		if err := p.setMounts(t, refused); err != nil {
			p.cfg.Log.Error("Watching mounts failed.", "error", err)
		}
	}
	return leaving
}

func (p *partialWatcher) reloadMounts() {
	t, err := readMounts()
	if err == nil && len(changedPoints(p.mountTable, t)) > 0 {
		err = p.setMounts(t, p.allMounts(t))
	}
	if err != nil {
		p.cfg.Log.Error("Watching mounts failed.", "error", err)
	}
}

// readInotify empties the queue of inotify, or reads at least the given number of bytes.
func (p *partialWatcher) readInotify(least int) (count int, err error) {
	before := p.trees.changeCount
	defer func() {
		if p.trees.changeCount != before {
			p.updatePolling()
		}
	}()
	for count <= 4*manyEvents || least > 0 {
		n, err := unix.Read(p.trees.fd, p.readBuf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return count, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return count, os.NewSyscallError("read", err)
		}
		least -= n
		for b := p.readBuf[:n]; len(b) > 0; count++ {
			var e inoEvent
			if e, b, err = nextInoEvent(b); err != nil {
				p.cfg.Log.Error("Decoding an inotify event failed; the package directories are scanned again.", "error",
					err)
				e = inoEvent{mask: unix.IN_Q_OVERFLOW}
			}
			p.trees.handleEvent(p.buffer, e)
			if e.mask&unix.IN_Q_OVERFLOW != 0 {
				break // what follows is of removed watches
			}
		}
	}
	return count, nil
}

// readWritten empties the queue of written files, or reads at least the given number of bytes.
func (p *partialWatcher) readWritten(least int) (count int, err error) {
	for p.writtenFD >= 0 && (count <= 4*manyEvents || least > 0) {
		n, err := unix.Read(p.writtenFD, p.readBuf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return count, nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESTALE),
			errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.ENXIO),
			errors.Is(err, unix.ETXTBSY):
			count++ // one file that can no longer be opened: its event is dropped
			least -= fanEventHeaderSize
			continue
		case err != nil:
			return count, os.NewSyscallError("read", err)
		}
		least -= n
		for b := p.readBuf[:n]; len(b) > 0; count++ {
			var e fanEvent
			if e, b, err = nextFanEvent(b); err != nil {
				p.cfg.Log.Error("Decoding an inotify event failed; the package directories are scanned again.", "error",
					err)
				e = fanEvent{fd: -1, mask: unix.FAN_Q_OVERFLOW}
			}
			p.fileWritten(&e)
		}
	}
	return count, nil
}

// fileWritten reports a written file.
func (p *partialWatcher) fileWritten(e *fanEvent) {
	if e.mask&unix.FAN_Q_OVERFLOW != 0 {
		for id := range p.partialMounts {
			p.cfg.addDirChange(p.buffer, p.mountTable.mounts[p.mountTable.byID[id]].mountPoint, DirChanged)
		}
		return
	}
	if e.fd < 0 {
		return
	}
	path, err := pathOfFD(int(e.fd))
	closeFD(int(e.fd))
	if err != nil || e.pid == p.ownPID || !filepath.IsAbs(path) || !p.cfg.WantsFile(filepath.Base(path)) {
		return
	}
	if dir := parentPath(path); p.cfg.isWatched(dir) {
		p.buffer.add(path, FileChanged)
	}
}

func (p *partialWatcher) mounts() []Mount {
	p.mu.Lock()
	out := slices.Clone(p.reportedMounts)
	p.mu.Unlock()
	out = append(out, p.poller.mounts()...)
	slices.SortStableFunc(out, func(a, b Mount) int { return cmp.Compare(a.Path, b.Path) })
	return out
}

func (p *partialWatcher) flush(ctx context.Context) error {
	if err := p.flushes.request(ctx, p.ended); err != nil {
		return err
	}
	return p.poller.flush(ctx)
}

func (p *partialWatcher) stop() error {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	p.flushes.notify()
	if !waitEnded(p.ended) {
		go func() { // it may get file events again
			<-p.ended
			p.closeFDs()
		}()
		return errHung
	}
	p.closeFDs()
	return p.poller.stop()
}

func (p *partialWatcher) closeFDs() {
	fds := []int{p.writtenFD, p.mountsFD, int(p.flushes.wakeSignal)}
	if p.trees != nil {
		fds = append(fds, p.trees.fd)
	}
	for _, fd := range fds {
		if fd >= 0 {
			closeFD(fd)
		}
	}
}
