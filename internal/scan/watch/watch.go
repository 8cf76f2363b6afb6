package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ChangeKind says what happened at a path.
type ChangeKind uint8

// The kinds of changes.
const (
	// File is a wanted file that was written and closed, made, linked or moved here, or
	// whose mode changed. It may be gone again by now. If there was a directory of this name,
	// what was known beneath it is gone.
	File ChangeKind = iota + 1
	// Folder is to be looked at with everything beneath: it came with content, or news of
	// it were lost. What was known beneath it and no longer exists is gone.
	Folder
	// Gone is a wanted file or a directory with everything beneath that no longer exists.
	Gone
)

// String returns the name.
func (w ChangeKind) String() string {
	switch w {
	case File:
		return "file"
	case Folder:
		return "folder"
	case Gone:
		return "gone"
	default:
		return fmt.Sprintf("what(%d)", uint8(w))
	}
}

// Change is one piece of news. The path is absolute and clean.
type Change struct {
	Path string
	What ChangeKind
}

// Method is a way of watching.
type Method string

// The methods. None is that of what is not watched.
const (
	None     Method = ""
	Fanotify Method = "fanotify"
	Written  Method = "fanotify-written" // of a file system that tells no more than which files were written
	Inotify  Method = "inotify"
	FSEvents Method = "fsevents"
	Poll     Method = "poll"
)

// Mount is a file system, or a directory where only parts are watched, and how.
type Mount struct {
	Path   string
	Type   string // of the file system
	Method Method
	Why    string // why it is not watched, or not fully; may be empty
}

// Options says what is watched.
type Options struct {
	// Roots are absolute directories; "/" is the whole host. None is the whole host too.
	Roots []string
	// Wants says by base name which files are told of. It is called for every event, by
	// several goroutines. Nil wants all.
	Wants func(name string) bool
	// Leave returns which directories are left out with everything beneath. May be nil.
	Leave func(path string) bool
	// Places are the directories where packages lie, for methods that cannot watch everything.
	// They need not exist yet.
	Places []string
	// State is a file in which a method keeps what it needs to catch up after a restart;
	// "" for none. Only FSEvents has something to keep.
	State string
	// Method is the way of watching, None for the best that works.
	Method Method
	Log    *slog.Logger
}

// ErrUnsupported is that of a method that this system does not have.
var ErrUnsupported = errors.New("this system has no such method")

// hangMost is how long the end of a goroutine is waited for that may ask a file system
// which does not answer. Such a goroutine cannot be stopped.
const hangMost = 8 * time.Second

// errHangs is that of one that is left behind.
var errHangs = errors.New("a file system does not answer: who waits for it is left behind")

// ends waits until a goroutine has ended, and says whether it has.
func ends(ended <-chan struct{}) bool {
	late := time.NewTimer(hangMost)
	defer late.Stop()
	select {
	case <-ended:
		return true
	case <-late.C:
		return false
	}
}

// source is a way of watching that works on its own goroutines once it is started.
type source interface {
	start()          // begins to fill the gather; called once
	mounts() []Mount // what is watched how
	// flush returns when everything that happened before is in the gather.
	flush(ctx context.Context) error
	stop() error // ends the goroutines and waits for them
}

// ackSource is a source that wants to know what was delivered.
type ackSource interface {
	delivered()
}

// Watcher tells what changed. Open makes it.
type Watcher struct {
	src   source
	news  *changeBuffer
	once  sync.Once
	close error
}

// Open begins to watch: nothing that happens after it returned is missed.
func Open(o Options) (*Watcher, error) {
	s, err := newScope(&o)
	if err != nil {
		return nil, fmt.Errorf("watching: %w", err)
	}
	news := newGather(s.roots)
	src, err := open(s, news)
	if err != nil {
		return nil, fmt.Errorf("watching: %w", err)
	}
	src.start()
	return &Watcher{src: src, news: news}, nil
}

// Run hands over changes in batches, in order and each path once, until the context ends
// or the watcher is closed. While take works, news are gathered within bounds. The slice
// is take's own.
func (w *Watcher) Run(ctx context.Context, take func([]Change)) error {
	for {
		batch, err := w.news.next(ctx)
		if err != nil {
			return err
		}
		take(batch)
		if k, ok := w.src.(ackSource); ok {
			k.delivered()
		}
	}
}

// Flush returns when Run has handed over everything that happened before, as far as the
// method can know it. Run must be at work.
func (w *Watcher) Flush(ctx context.Context) error {
	if err := w.src.flush(ctx); err != nil {
		return err
	}
	return w.news.flush(ctx)
}

// Mounts returns what is watched how, and what is not and why.
func (w *Watcher) Mounts() []Mount { return w.src.mounts() }

// Close ends watching. Run returns.
func (w *Watcher) Close() error {
	w.once.Do(func() {
		w.close = w.src.stop()
		w.news.end()
	})
	return w.close
}

// choose opens the first method that works, or the one that was asked for.
func choose(s *scope, news *changeBuffer, ways []methodEntry) (source, error) {
	var refused []error
	for _, w := range ways {
		if s.Method != None && s.Method != w.method {
			continue
		}
		src, err := w.open(s, news)
		if err == nil {
			if len(refused) > 0 {
				s.Log.Warn("A better way of watching is refused.", "method", string(w.method), "error", errors.Join(refused...))
			}
			return src, nil
		}
		refused = append(refused, fmt.Errorf("%s: %w", w.method, err))
	}
	if len(refused) == 0 {
		return nil, fmt.Errorf("%s: %w", s.Method, ErrUnsupported)
	}
	return nil, errors.Join(refused...)
}

// methodEntry is a method and how it is opened.
type methodEntry struct {
	method Method
	open   func(*scope, *changeBuffer) (source, error)
}

// realPath returns the path of a directory without links, as a walk from the root sees it. A directory
// that is not there keeps its name, under what there is of it.
func realPath(name string) string {
	name = filepath.Clean(name)
	if p, err := filepath.EvalSymlinks(name); err == nil {
		return p
	}
	if dir := filepath.Dir(name); dir != name {
		if _, err := os.Lstat(name); err != nil {
			return filepath.Join(realPath(dir), filepath.Base(name))
		}
	}
	return name
}
