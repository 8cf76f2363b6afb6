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

// ChangeKind is the kind of a change.
type ChangeKind uint8

// The kinds of changes.
const (
	// FileChanged is a wanted file that was written and closed, made, linked or moved here, or whose mode
	// changed. It may be gone again by now. If a directory had this name, what was known below it
	// is gone.
	FileChanged ChangeKind = iota + 1
	// DirChanged is to be walked with everything below: it came with content, or changes in it were
	// lost. What was known below it and no longer exists is gone.
	DirChanged
	// Removed is a wanted file or a directory with everything below that no longer exists.
	Removed
)

// String returns the name.
func (w ChangeKind) String() string {
	switch w {
	case FileChanged:
		return "file"
	case DirChanged:
		return "folder"
	case Removed:
		return "gone"
	default:
		return fmt.Sprintf("what(%d)", uint8(w))
	}
}

// Change is one change. The path is absolute and clean.
type Change struct {
	Path string
	Kind ChangeKind
}

// Method is a method of watching.
type Method string

// The methods. None is that of file systems that are not watched.
const (
	None            Method = ""
	Fanotify        Method = "fanotify"
	FanotifyWritten Method = "fanotify-written" // of a file system that reports only which files were written
	Inotify         Method = "inotify"
	FSEvents        Method = "fsevents"
	Poll            Method = "poll"
)

// Mount is a file system, or a directory where only parts are watched, and how.
type Mount struct {
	Path   string
	Type   string // of the file system
	Method Method
	Reason string // why it is not watched, or not fully; may be empty
}

// Options select what is watched.
type Options struct {
	// Roots are absolute directories; "/" is the whole host. None is the whole host too.
	Roots []string
	// WantsFile reports by base name whether changes of a file are reported. It is called for every
	// event, by several goroutines. Nil wants all.
	WantsFile func(name string) bool
	// Exclude reports whether a directory is left out with everything below. May be nil.
	Exclude func(path string) bool
	// PackageDirs are the package directories, for methods that cannot watch everything. They need not
	// exist yet.
	PackageDirs []string
	// StatePath is a file in which a method keeps what it needs to catch up after a restart; "" for
	// none. Only FSEvents uses it.
	StatePath string
	// Method is the method of watching, None for the best that works.
	Method Method
	Log    *slog.Logger
}

// ErrUnsupported is the error of a method that this system does not have.
var ErrUnsupported = errors.New("this operating system does not support the watch method")

// hangTimeout limits the wait for a goroutine that may access a file system which does not answer.
// Such a goroutine cannot be stopped.
const hangTimeout = 8 * time.Second

// errHung is the error for a goroutine that is left behind.
var errHung = errors.New("a file system does not respond; the task that waits for it is abandoned")

// waitEnded waits until a goroutine has ended, and reports whether it has.
func waitEnded(ended <-chan struct{}) bool {
	late := time.NewTimer(hangTimeout)
	defer late.Stop()
	select {
	case <-ended:
		return true
	case <-late.C:
		return false
	}
}

// eventSource is a method of watching that works on its own goroutines once it is started.
type eventSource interface {
	start()          // begins to fill the change buffer; called once
	mounts() []Mount // what is watched how
	// flush returns when everything that happened before is in the change buffer.
	flush(ctx context.Context) error
	stop() error // ends the goroutines and waits for them
}

// ackSource is a source that needs to know which changes were delivered.
type ackSource interface {
	ackDelivered()
}

// Watcher reports changes. Open creates it.
type Watcher struct {
	source    eventSource
	buffer    *changeBuffer
	closeOnce sync.Once
	closeErr  error
}

// Open begins to watch: no change after its return is missed.
func Open(o Options) (*Watcher, error) {
	s, err := newWatchConfig(&o)
	if err != nil {
		return nil, fmt.Errorf("watching: %w", err)
	}
	buffer := newChangeBuffer(s.roots)
	src, err := openSource(s, buffer)
	if err != nil {
		return nil, fmt.Errorf("watching: %w", err)
	}
	src.start()
	return &Watcher{source: src, buffer: buffer}, nil
}

// Run delivers changes in batches, in order and each path once, until the context ends or the
// watcher is closed. While take works, changes are gathered within bounds. take owns the slice.
func (w *Watcher) Run(ctx context.Context, take func([]Change)) error {
	for {
		batch, err := w.buffer.nextBatch(ctx)
		if err != nil {
			return err
		}
		take(batch)
		if k, ok := w.source.(ackSource); ok {
			k.ackDelivered()
		}
	}
}

// Flush returns when Run has delivered everything that happened before, as far as the method can
// know it. Run must be running.
func (w *Watcher) Flush(ctx context.Context) error {
	if err := w.source.flush(ctx); err != nil {
		return err
	}
	return w.buffer.flush(ctx)
}

// Mounts returns how each file system is watched, and why others are not.
func (w *Watcher) Mounts() []Mount { return w.source.mounts() }

// Close stops watching. Run returns.
func (w *Watcher) Close() error {
	w.closeOnce.Do(func() {
		w.closeErr = w.source.stop()
		w.buffer.close()
	})
	return w.closeErr
}

// openMethod opens the first method that works, or the one in the options.
func openMethod(s *watchConfig, buffer *changeBuffer, ways []methodEntry) (eventSource, error) {
	var refused []error
	for _, w := range ways {
		if s.Method != None && s.Method != w.method {
			continue
		}
		src, err := w.open(s, buffer)
		if err == nil {
			if len(refused) > 0 {
				s.Log.Warn("A better watch method is not available.", "method", string(w.method), "error",
					errors.Join(refused...))
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

// methodEntry is a method and the function that opens it.
type methodEntry struct {
	method Method
	open   func(*watchConfig, *changeBuffer) (eventSource, error)
}

// realPath returns the path of a directory without links, as a walk from the root sees it. A
// missing directory keeps its name, under the deepest ancestor that exists.
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
