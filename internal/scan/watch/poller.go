package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// minTrustedAge is the minimum age of a directory's time for it to be trusted: file systems count in
// steps, and two changes within one step look like one.
const minTrustedAge = 2 * time.Second

// poller checks directories periodically, where no event reports changes. It remembers the times of
// directories and of wanted files, up to a limit.
type poller struct {
	cfg              *watchConfig
	buffer           *changeBuffer
	quit             chan struct{}
	ended            chan struct{}
	startDirsChanged chan struct{} // the start directories changed

	mu           sync.Mutex
	startDirs    []string
	reason       string // why they are polled
	limitReached bool   // the limit was reached

	checkMu      sync.Mutex // held during a check of directories, which may take long
	isOtherMount func(path string) bool
	dirs         map[string]dirSnapshot // state at the last check
	fileCount    int                    // of all directories
}

// dirSnapshot is the state of one directory at its last check.
type dirSnapshot struct {
	modTime         time.Time
	listedAt        time.Time // when it was listed
	files           map[string]fileSnapshot
	subdirs         []string
	fullReportsLeft int // checks since it was reported as a whole, counted down from youth
}

// fullReportChecks is for how many checks after a directory was reported as a whole the next change does that
// again: its walk may have seen files that came and went between two checks, and that would never
// be reported as gone.
const fullReportChecks = 3

// fileSnapshot distinguishes a file from a later one of the same name.
type fileSnapshot struct {
	modTime time.Time
	size    int64
	mode    fs.FileMode
}

func newPoller(s *watchConfig, buffer *changeBuffer) *poller {
	return &poller{
		cfg: s, buffer: buffer, quit: make(chan struct{}), ended: make(chan struct{}),
		startDirsChanged: make(chan struct{}, 1),
		dirs:             map[string]dirSnapshot{},
	}
}

// openPoll watches by polling alone.
func openPoll(s *watchConfig, buffer *changeBuffer) (eventSource, error) {
	p := newPoller(s, buffer)
	p.setDirs(s.startDirs(), "", func(string) bool { return false })
	return p, nil
}

// setDirs sets which directories are polled and why, and where other file systems begin. A new
// directory is listed now, so that later changes are seen.
func (p *poller) setDirs(tops []string, why string, foreign func(path string) bool) {
	p.mu.Lock()
	p.startDirs, p.reason, p.limitReached = slices.Clone(tops), why, false
	p.mu.Unlock()
	p.checkMu.Lock()
	defer p.checkMu.Unlock()
	p.isOtherMount = foreign
	for f := range p.dirs {
		if !slices.ContainsFunc(tops, func(t string) bool { return isWithin(t, f) }) {
			p.forgetLocked(f)
		}
	}
	for _, t := range tops {
		if _, ok := p.dirs[t]; !ok {
			p.rememberLocked(t)
		}
	}
	select {
	case p.startDirsChanged <- struct{}{}:
	default:
	}
}

// start polls until stop; while there is nothing to poll it sleeps.
func (p *poller) start() {
	go func() {
		defer close(p.ended)
		for {
			var tick <-chan time.Time
			if len(p.polledDirs()) > 0 {
				tick = time.After(p.cfg.limits.pollInterval)
			}
			select {
			case <-p.quit:
				return
			case <-p.startDirsChanged:
			case <-tick:
				p.checkAll()
			}
		}
	}()
}

func (p *poller) polledDirs() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.startDirs
}

// flush checks everything now. It does not wait for a file system that hangs.
func (p *poller) flush(ctx context.Context) error {
	if len(p.polledDirs()) == 0 {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.checkAll()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *poller) stop() error {
	close(p.quit)
	if !waitEnded(p.ended) {
		return errHung
	}
	return nil
}

// mounts returns what is polled.
func (p *poller) mounts() []Mount {
	p.mu.Lock()
	defer p.mu.Unlock()
	why := fmt.Sprintf("it is looked at every %v", p.cfg.limits.pollInterval)
	if p.reason != "" {
		why = p.reason + ": " + why
	}
	if p.limitReached {
		why += fmt.Sprintf("; only the first %d directories and files are remembered", p.cfg.limits.maxPolled)
	}
	var out []Mount
	for _, t := range p.startDirs {
		out = append(out, Mount{t, "", Poll, why})
	}
	return out
}

// checkAll checks everything once.
func (p *poller) checkAll() {
	p.checkMu.Lock()
	defer p.checkMu.Unlock()
	for _, t := range p.polledDirs() {
		if _, ok := p.dirs[t]; !ok && p.rememberLocked(t) {
			p.buffer.add(t, DirChanged)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(p.dirs)) {
		if _, ok := p.dirs[f]; ok { // it may have been removed with one above
			p.checkLocked(f)
		}
	}
}

// checkLocked compares a directory with its last state.
func (p *poller) checkLocked(path string) {
	old := p.dirs[path]
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir():
		p.forgetLocked(path)
		p.buffer.add(path, Removed)
		return
	case err != nil:
		return
	}
	same := info.ModTime().Equal(old.modTime)
	if same && old.listedAt.Sub(old.modTime) > minTrustedAge {
		if old.fullReportsLeft > 0 {
			old.fullReportsLeft--
			p.dirs[path] = old
		}
		p.checkFilesLocked(path, old)
		return
	}
	now, err := p.listDir(path)
	if err != nil {
		return
	}
	p.fileCount += len(now.files) - len(old.files)
	now.fullReportsLeft = old.fullReportsLeft
	if !same && old.fullReportsLeft > 0 {
		now.fullReportsLeft = fullReportChecks
		p.buffer.add(path, DirChanged)
	}
	p.dirs[path] = now
	p.compareLocked(path, old, now)
}

// checkFilesLocked checks the files of a directory in which no name changed.
func (p *poller) checkFilesLocked(path string, f dirSnapshot) {
	for name, was := range f.files {
		info, err := os.Lstat(joinPath(path, name))
		if err != nil {
			continue // the directory's time shows it at the next check
		}
		if is := snapshotOf(info); is != was {
			f.files[name] = is
			p.buffer.add(joinPath(path, name), FileChanged)
		}
	}
}

// compareLocked reports the differences of a directory.
func (p *poller) compareLocked(path string, old, now dirSnapshot) {
	for name := range old.files {
		if _, ok := now.files[name]; !ok {
			p.buffer.add(joinPath(path, name), Removed)
		}
	}
	for name, is := range now.files {
		if was, ok := old.files[name]; !ok || was != is {
			p.buffer.add(joinPath(path, name), FileChanged)
		}
	}
	for _, k := range old.subdirs {
		if !slices.Contains(now.subdirs, k) {
			p.forgetLocked(joinPath(path, k))
			p.buffer.add(joinPath(path, k), Removed)
		}
	}
	for _, k := range now.subdirs {
		kid := joinPath(path, k)
		if _, known := p.dirs[kid]; known {
			continue
		}
		isNew := !slices.Contains(old.subdirs, k) && p.cfg.isWatched(kid) && !p.isOtherMount(kid)
		if p.rememberLocked(kid) || isNew { // the limit may not allow to remember it
			p.buffer.add(kid, DirChanged)
		}
	}
}

// rememberLocked lists a directory and those below, and reports whether it is remembered now.
func (p *poller) rememberLocked(path string) bool {
	if len(p.dirs)+p.fileCount >= p.cfg.limits.maxPolled {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.limitReached = true
		return false
	}
	if !p.cfg.isWatched(path) || p.isOtherMount(path) {
		return false
	}
	f, err := p.listDir(path)
	if err != nil {
		return false
	}
	f.fullReportsLeft = fullReportChecks
	p.dirs[path] = f
	p.fileCount += len(f.files)
	for _, k := range f.subdirs {
		p.rememberLocked(joinPath(path, k))
	}
	return true
}

// forgetLocked forgets a directory and those below.
func (p *poller) forgetLocked(path string) {
	f, ok := p.dirs[path]
	if !ok {
		return
	}
	delete(p.dirs, path)
	p.fileCount -= len(f.files)
	for _, k := range f.subdirs {
		p.forgetLocked(joinPath(path, k))
	}
}

// listDir reads a directory. Its time is read first: what changes during the read is seen at the next
// check.
func (p *poller) listDir(path string) (dirSnapshot, error) {
	f := dirSnapshot{files: map[string]fileSnapshot{}, listedAt: time.Now()}
	info, err := os.Lstat(path)
	if err != nil {
		return f, err
	}
	if !info.IsDir() {
		return f, fmt.Errorf("%s is not a directory", path)
	}
	f.modTime = info.ModTime()
	entries, err := os.ReadDir(path)
	if err != nil {
		return f, err
	}
	for _, e := range entries {
		switch {
		case e.IsDir():
			f.subdirs = append(f.subdirs, e.Name())
		case p.cfg.WantsFile(e.Name()):
			if info, err := e.Info(); err == nil {
				f.files[e.Name()] = snapshotOf(info)
			}
		}
	}
	return f, nil
}

func snapshotOf(info fs.FileInfo) fileSnapshot {
	return fileSnapshot{info.ModTime(), info.Size(), info.Mode()}
}
