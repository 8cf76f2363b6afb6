package host

import (
	"context"
	"log/slog"
)

// Watcher reports changes. *watch.Watcher is one.
type Watcher interface {
	// Run reports changes until ctx ends. take returns quickly.
	Run(ctx context.Context, take func([]Change)) error
	// Flush returns when Run has reported everything that happened before.
	Flush(ctx context.Context) error
	// Mounts returns the file systems and how each is watched.
	Mounts() []Mount
	Close() error
}

// Change is a change of a path.
type Change struct {
	Path string // absolute and clean
	Kind ChangeKind
}

// ChangeKind is the kind of a change.
type ChangeKind uint8

// The kinds of changes.
const (
	FileChanged ChangeKind = iota + 1 // a file was written, made, linked or moved here, or its mode changed
	DirChanged                        // walk everything below again
	Removed                           // the path no longer exists
)

// WatchOptions are what a watcher is made with.
type WatchOptions struct {
	Root      string                 // absolute; "/" is the whole host
	WantsFile func(name string) bool // by base name of files
	Exclude   func(path string) bool // directories that are not watched
	StatePath string                 // file in which it may keep what it needs to catch up
	Log       *slog.Logger
}

// WatchFunc creates a watcher. No change made after it returned is missed.
type WatchFunc func(WatchOptions) (Watcher, error)
