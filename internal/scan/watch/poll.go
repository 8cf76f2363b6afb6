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

// settled is the minimum age of a directory's time for it to be trusted: file systems count in
// steps, and two changes within one step look like one.
const settled = 2 * time.Second

// poller checks directories periodically, where no event reports changes. It remembers the times of
// directories and of wanted files, up to a limit.
type poller struct {
	s     *scope
	news  *changeBuffer
	quit  chan struct{}
	ended chan struct{}
	set   chan struct{} // the start directories changed

	mu   sync.Mutex
	tops []string
	why  string // why they are polled
	full bool   // the limit was reached

	work    sync.Mutex // held during a check of directories, which may take long
	foreign func(path string) bool
	dirs    map[string]dirStamp // state at the last check
	files   int                 // of all directories
}

// dirStamp is the state of one directory at its last check.
type dirStamp struct {
	time  time.Time
	seen  time.Time // when it was listed
	files map[string]stamp
	kids  []string
	young int // checks since it was reported as a whole, counted down from youth
}

// youth is for how many checks after a directory was reported as a whole the next change does that
// again: its walk may have seen files that came and went between two checks, and that would never
// be reported as gone.
const youth = 3

// stamp distinguishes a file from a later one of the same name.
type stamp struct {
	time time.Time
	size int64
	mode fs.FileMode
}

func newPoller(s *scope, news *changeBuffer) *poller {
	return &poller{
		s: s, news: news, quit: make(chan struct{}), ended: make(chan struct{}), set: make(chan struct{}, 1),
		dirs: map[string]dirStamp{},
	}
}

// openPoll watches by polling alone.
func openPoll(s *scope, news *changeBuffer) (source, error) {
	p := newPoller(s, news)
	p.look(s.starts(), "", func(string) bool { return false })
	return p, nil
}

// look sets which directories are polled and why, and where other file systems begin. A new
// directory is listed now, so that later changes are seen.
func (p *poller) look(tops []string, why string, foreign func(path string) bool) {
	p.mu.Lock()
	p.tops, p.why, p.full = slices.Clone(tops), why, false
	p.mu.Unlock()
	p.work.Lock()
	defer p.work.Unlock()
	p.foreign = foreign
	for f := range p.dirs {
		if !slices.ContainsFunc(tops, func(t string) bool { return within(t, f) }) {
			p.forgetLocked(f)
		}
	}
	for _, t := range tops {
		if _, ok := p.dirs[t]; !ok {
			p.learnLocked(t)
		}
	}
	select {
	case p.set <- struct{}{}:
	default:
	}
}

// start polls until stop; while there is nothing to poll it sleeps.
func (p *poller) start() {
	go func() {
		defer close(p.ended)
		for {
			var tick <-chan time.Time
			if len(p.polled()) > 0 {
				tick = time.After(p.s.tune.interval)
			}
			select {
			case <-p.quit:
				return
			case <-p.set:
			case <-tick:
				p.round()
			}
		}
	}()
}

func (p *poller) polled() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tops
}

// flush checks everything now. It does not wait for a file system that hangs.
func (p *poller) flush(ctx context.Context) error {
	if len(p.polled()) == 0 {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.round()
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
	if !ends(p.ended) {
		return errHangs
	}
	return nil
}

// mounts returns what is polled.
func (p *poller) mounts() []Mount {
	p.mu.Lock()
	defer p.mu.Unlock()
	why := fmt.Sprintf("it is looked at every %v", p.s.tune.interval)
	if p.why != "" {
		why = p.why + ": " + why
	}
	if p.full {
		why += fmt.Sprintf("; only the first %d directories and files are remembered", p.s.tune.polled)
	}
	var out []Mount
	for _, t := range p.tops {
		out = append(out, Mount{t, "", Poll, why})
	}
	return out
}

// round checks everything once.
func (p *poller) round() {
	p.work.Lock()
	defer p.work.Unlock()
	for _, t := range p.polled() {
		if _, ok := p.dirs[t]; !ok && p.learnLocked(t) {
			p.news.add(t, Folder)
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
		p.news.add(path, Gone)
		return
	case err != nil:
		return
	}
	same := info.ModTime().Equal(old.time)
	if same && old.seen.Sub(old.time) > settled {
		if old.young > 0 {
			old.young--
			p.dirs[path] = old
		}
		p.filesLocked(path, old)
		return
	}
	now, err := p.list(path)
	if err != nil {
		return
	}
	p.files += len(now.files) - len(old.files)
	now.young = old.young
	if !same && old.young > 0 {
		now.young = youth
		p.news.add(path, Folder)
	}
	p.dirs[path] = now
	p.compareLocked(path, old, now)
}

// filesLocked checks the files of a directory in which no name changed.
func (p *poller) filesLocked(path string, f dirStamp) {
	for name, was := range f.files {
		info, err := os.Lstat(join(path, name))
		if err != nil {
			continue // the directory's time shows it at the next check
		}
		if is := stampOf(info); is != was {
			f.files[name] = is
			p.news.add(join(path, name), File)
		}
	}
}

// compareLocked reports the differences of a directory.
func (p *poller) compareLocked(path string, old, now dirStamp) {
	for name := range old.files {
		if _, ok := now.files[name]; !ok {
			p.news.add(join(path, name), Gone)
		}
	}
	for name, is := range now.files {
		if was, ok := old.files[name]; !ok || was != is {
			p.news.add(join(path, name), File)
		}
	}
	for _, k := range old.kids {
		if !slices.Contains(now.kids, k) {
			p.forgetLocked(join(path, k))
			p.news.add(join(path, k), Gone)
		}
	}
	for _, k := range now.kids {
		kid := join(path, k)
		if _, known := p.dirs[kid]; known {
			continue
		}
		isNew := !slices.Contains(old.kids, k) && p.s.seen(kid) && !p.foreign(kid)
		if p.learnLocked(kid) || isNew { // the limit may not allow to remember it
			p.news.add(kid, Folder)
		}
	}
}

// learnLocked lists a directory and those below, and reports whether it is remembered now.
func (p *poller) learnLocked(path string) bool {
	if len(p.dirs)+p.files >= p.s.tune.polled {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.full = true
		return false
	}
	if !p.s.seen(path) || p.foreign(path) {
		return false
	}
	f, err := p.list(path)
	if err != nil {
		return false
	}
	f.young = youth
	p.dirs[path] = f
	p.files += len(f.files)
	for _, k := range f.kids {
		p.learnLocked(join(path, k))
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
	p.files -= len(f.files)
	for _, k := range f.kids {
		p.forgetLocked(join(path, k))
	}
}

// list reads a directory. Its time is read first: what changes during the read is seen at the next
// check.
func (p *poller) list(path string) (dirStamp, error) {
	f := dirStamp{files: map[string]stamp{}, seen: time.Now()}
	info, err := os.Lstat(path)
	if err != nil {
		return f, err
	}
	if !info.IsDir() {
		return f, fmt.Errorf("%s is not a directory", path)
	}
	f.time = info.ModTime()
	entries, err := os.ReadDir(path)
	if err != nil {
		return f, err
	}
	for _, e := range entries {
		switch {
		case e.IsDir():
			f.kids = append(f.kids, e.Name())
		case p.s.Wants(e.Name()):
			if info, err := e.Info(); err == nil {
				f.files[e.Name()] = stampOf(info)
			}
		}
	}
	return f, nil
}

func stampOf(info fs.FileInfo) stamp {
	return stamp{info.ModTime(), info.Size(), info.Mode()}
}
