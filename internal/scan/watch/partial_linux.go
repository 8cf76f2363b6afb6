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

// partial watches file systems that cannot be watched as a whole: by inotify the package
// directories, by fanotify, where it is permitted at all, the files that are written, and by
// polling the rest. Without privileges it is the only method; with them it watches the file systems
// that refuse a mark. After start one goroutine does all work, apart from the one that watches
// whole file systems: this one may hang on a file system in user space.
type partial struct {
	s        *scope
	news     *changeBuffer
	fallback bool
	written  int // fanotify group; below zero if not permitted
	changed  int // the mount table, for poll; below zero for a fallback, which is notified
	calls    flushRequests
	ended    chan struct{}
	poll     *poller
	own      int32
	buf      []byte

	t     *table
	mine  map[int]string // id of a mount -> why it is not watched as a whole
	grown *inotifyTrees

	mu      sync.Mutex
	said    []Mount
	next    *table         // to be used next, with
	refused map[int]string // these
	leaving bool
}

func openPartial(s *scope, news *changeBuffer) (source, error) {
	p, err := newPartial(s, news, false)
	if err != nil {
		return nil, err
	}
	t, err := readMounts()
	if err == nil {
		err = p.set(t, p.all(t))
	}
	if err != nil {
		p.release()
		return nil, err
	}
	return p, nil
}

func newPartial(s *scope, news *changeBuffer, fallback bool) (_ *partial, err error) {
	p := &partial{
		s: s, news: news, fallback: fallback, written: -1, changed: -1, calls: newFlushRequests(),
		own:   int32(os.Getpid()),
		ended: make(chan struct{}), poll: newPoller(s, news), buf: make([]byte, fanBuffer/2),
	}
	defer func() {
		if err != nil {
			p.release()
		}
	}()
	if p.calls.wake, err = newSignal(); err != nil {
		return nil, err
	}
	if p.grown, err = newInotifyTrees(s); err != nil {
		return nil, err
	}
	if !fallback {
		p.changed, err = openMounts()
	}
	return p, err
}

// all returns every mount with a part below the roots, for systems without a better method.
func (p *partial) all(t *table) map[int]string {
	mine := map[int]string{}
	for _, m := range t.visible() {
		_, left := elsewhere[m.kind]
		if p.s.owns(t, m) || !left && p.s.relevant(t, m) {
			mine[m.id] = ""
		}
	}
	return mine
}

// set begins to watch some mounts, and stops watching those that another method watches.
func (p *partial) set(t *table, mine map[int]string) error {
	var points []string
	if p.t != nil {
		points = changed(p.t, t)
	}
	p.t, p.mine = t, mine
	p.grown.foreign = func(path string) bool {
		i, ok := t.point[path]
		if !ok {
			return false
		}
		_, ours := mine[t.list[i].id]
		return !ours
	}
	p.markWritten()
	for _, at := range points {
		p.grown.unwatchTree(at)
	}
	starts, polled := p.starts()
	p.grown.setTrees(starts)
	for _, at := range points {
		p.grown.rewatchTree(at)
		p.s.told(p.news, at, Folder)
	}
	p.grown.polled = polled
	p.settle()
	return nil
}

// starts returns the directories to watch, and those to poll: of file systems that change on other
// machines, which no kernel event reports.
func (p *partial) starts() (starts, polled []string) {
	for _, st := range p.s.starts() {
		if m, ok := p.t.owner(st); ok {
			if _, ours := p.mine[m.id]; !ours {
				continue
			}
			if _, far := elsewhere[m.kind]; far {
				polled = append(polled, st)
				continue
			}
		}
		starts = append(starts, st)
	}
	for _, m := range p.t.visible() {
		_, ours := p.mine[m.id]
		_, far := elsewhere[m.kind]
		inside := slices.ContainsFunc(p.s.starts(),
			func(st string) bool { return st != m.point && within(st, m.point) })
		if ours && inside && !far {
			starts = append(starts, m.point)
		}
	}
	return starts, polled
}

// markWritten marks each mount for events of written files. Only a fallback may.
func (p *partial) markWritten() {
	if !p.fallback || len(p.mine) == 0 {
		return
	}
	if p.written < 0 {
		flags := uint(unix.FAN_CLASS_NOTIF | unix.FAN_NONBLOCK | unix.FAN_CLOEXEC)
		fd, err := unix.FanotifyInit(flags, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_LARGEFILE|unix.O_NOATIME)
		if err != nil {
			p.s.Log.Warn("Changed files on some file systems are not reported.", "error", err)
			return
		}
		p.written = fd
	}
	for id := range p.mine {
		m := p.t.list[p.t.id[id]]
		if _, far := elsewhere[m.kind]; far {
			continue
		}
		err := unix.FanotifyMark(p.written, unix.FAN_MARK_ADD|unix.FAN_MARK_MOUNT, unix.FAN_CLOSE_WRITE, unix.AT_FDCWD,
			m.point)
		if err != nil {
			p.s.Log.Warn("Changed files on a file system are not reported.", "mount", m.point, "error", err)
		}
	}
}

// settle leaves to polling what inotify has no watches for, and updates the reported mounts.
func (p *partial) settle() {
	rest := p.grown.listUnwatched()
	p.poll.look(rest, p.grown.why(), p.grown.foreign)
	starts := p.s.starts()
	var said []Mount
	for id, why := range p.mine {
		m := p.t.list[p.t.id[id]]
		if _, far := elsewhere[m.kind]; far {
			said = append(said, Mount{m.point, m.kind, Poll, "changes are made on another machine"})
			continue
		}
		whole := slices.ContainsFunc(starts, func(st string) bool { return within(st, m.point) })
		some := slices.ContainsFunc(starts, func(st string) bool { return within(m.point, st) })
		method := Inotify
		var parts []string
		if why != "" {
			parts = append(parts, why)
		}
		switch {
		case whole:
		case p.written >= 0 && some:
			parts = append(parts, "written files are reported, and all changes in package directories")
			method = Written
		case p.written >= 0:
			parts = append(parts, "only files that are written are told")
			method = Written
		case some:
			parts = append(parts, "only package directories are watched")
		default:
			parts = append(parts, "no packages are expected here")
			method = None
		}
		said = append(said, Mount{m.point, m.kind, method, strings.Join(parts, ": ")})
	}
	if n := p.grown.refused; n > 0 {
		said = append(said, Mount{"", "", None, fmt.Sprintf("%d directories may not be read", n)})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = said
}

// later makes the goroutine use another mount table.
func (p *partial) later(t *table, refused map[int]string) {
	p.mu.Lock()
	p.next, p.refused = t, refused
	p.mu.Unlock()
	p.calls.raise()
}

// start runs until stop.
func (p *partial) start() {
	p.poll.start()
	go func() {
		defer close(p.ended)
		if err := p.loop(); err != nil {
			p.s.Log.Error("File watcher stopped.", "method", string(Inotify), "error", err)
			p.s.lost(p.news)
		}
	}()
}

// loop waits, reads, and rests.
func (p *partial) loop() error {
	pause := restShort
	for {
		fds := []unix.PollFd{
			{Fd: int32(p.calls.wake), Events: unix.POLLIN},
			{Fd: int32(p.grown.fd), Events: unix.POLLIN},
			{Fd: int32(p.written), Events: unix.POLLIN}, // below zero is left out
			{Fd: int32(p.changed), Events: unix.POLLPRI},
		}
		if err := await(fds); err != nil {
			return err
		}
		if p.asked() {
			return nil
		}
		waiting := p.calls.take()
		if fds[3].Revents != 0 {
			p.remount()
		}
		a, err := p.readDirs(waiting.queued(p.grown.fd))
		if err != nil {
			return err
		}
		b, err := p.readWritten(waiting.queued(p.written))
		if err != nil {
			return err
		}
		waiting.answer()
		pause = rest(pause, a+b)
		p.calls.rest(pause)
	}
}

// asked handles requests of other goroutines, and reports whether to end.
func (p *partial) asked() bool {
	p.calls.wake.clear()
	p.mu.Lock()
	t, refused, leaving := p.next, p.refused, p.leaving
	p.next = nil
	p.mu.Unlock()
	if t != nil && !leaving {
		if err := p.set(t, refused); err != nil {
			p.s.Log.Error("Watching mounts failed.", "error", err)
		}
	}
	return leaving
}

func (p *partial) remount() {
	t, err := readMounts()
	if err == nil && len(changed(p.t, t)) > 0 {
		err = p.set(t, p.all(t))
	}
	if err != nil {
		p.s.Log.Error("Watching mounts failed.", "error", err)
	}
}

// readDirs empties the queue of inotify, or reads at least the given number of bytes.
func (p *partial) readDirs(least int) (count int, err error) {
	before := p.grown.version
	defer func() {
		if p.grown.version != before {
			p.settle()
		}
	}()
	for count <= 4*restMany || least > 0 {
		n, err := unix.Read(p.grown.fd, p.buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return count, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return count, os.NewSyscallError("read", err)
		}
		least -= n
		for b := p.buf[:n]; len(b) > 0; count++ {
			var e inoEvent
			if e, b, err = nextInoEvent(b); err != nil {
				p.s.Log.Error("Decoding an inotify event failed; the package directories are scanned again.", "error",
					err)
				e = inoEvent{mask: unix.IN_Q_OVERFLOW}
			}
			p.grown.event(p.news, e)
			if e.mask&unix.IN_Q_OVERFLOW != 0 {
				break // what follows is of removed watches
			}
		}
	}
	return count, nil
}

// readWritten empties the queue of written files, or reads at least the given number of bytes.
func (p *partial) readWritten(least int) (count int, err error) {
	for p.written >= 0 && (count <= 4*restMany || least > 0) {
		n, err := unix.Read(p.written, p.buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return count, nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESTALE),
			errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.ENXIO),
			errors.Is(err, unix.ETXTBSY):
			count++ // one file that can no longer be opened: its event is dropped
			least -= fanHead
			continue
		case err != nil:
			return count, os.NewSyscallError("read", err)
		}
		least -= n
		for b := p.buf[:n]; len(b) > 0; count++ {
			var e fanEvent
			if e, b, err = nextFanEvent(b); err != nil {
				p.s.Log.Error("Decoding a fanotify event failed; all watched directories are scanned again.", "error",
					err)
				e = fanEvent{fd: -1, mask: unix.FAN_Q_OVERFLOW}
			}
			p.wrote(&e)
		}
	}
	return count, nil
}

// wrote reports a written file.
func (p *partial) wrote(e *fanEvent) {
	if e.mask&unix.FAN_Q_OVERFLOW != 0 {
		for id := range p.mine {
			p.s.told(p.news, p.t.list[p.t.id[id]].point, Folder)
		}
		return
	}
	if e.fd < 0 {
		return
	}
	path, err := pathOf(int(e.fd))
	closeFile(int(e.fd))
	if err != nil || e.pid == p.own || !filepath.IsAbs(path) || !p.s.Wants(filepath.Base(path)) {
		return
	}
	if dir := parent(path); p.s.seen(dir) {
		p.news.add(path, File)
	}
}

func (p *partial) mounts() []Mount {
	p.mu.Lock()
	out := slices.Clone(p.said)
	p.mu.Unlock()
	out = append(out, p.poll.mounts()...)
	slices.SortStableFunc(out, func(a, b Mount) int { return cmp.Compare(a.Path, b.Path) })
	return out
}

func (p *partial) flush(ctx context.Context) error {
	if err := p.calls.ask(ctx, p.ended); err != nil {
		return err
	}
	return p.poll.flush(ctx)
}

func (p *partial) stop() error {
	p.mu.Lock()
	p.leaving = true
	p.mu.Unlock()
	p.calls.raise()
	if !ends(p.ended) {
		go func() { // it may get file events again
			<-p.ended
			p.release()
		}()
		return errHangs
	}
	p.release()
	return p.poll.stop()
}

func (p *partial) release() {
	fds := []int{p.written, p.changed, int(p.calls.wake)}
	if p.grown != nil {
		fds = append(fds, p.grown.fd)
	}
	for _, fd := range fds {
		if fd >= 0 {
			closeFile(fd)
		}
	}
}
