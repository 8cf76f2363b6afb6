package host

import (
	"context"
	"log/slog"
)

// Watcher says what changes. *watch.Watcher is one.
type Watcher interface {
	// Run tells of changes until ctx ends. take is quick.
	Run(ctx context.Context, take func([]Change)) error
	// Flush returns when Run has told of everything that happened before.
	Flush(ctx context.Context) error
	// Mounts returns what is watched, and how.
	Mounts() []Mount
	Close() error
}

// Change is something that happened to a path.
type Change struct {
	Path string // absolute and clean
	What ChangeKind
}

// ChangeKind happened.
type ChangeKind uint8

// The kinds of changes.
const (
	FileChanged   ChangeKind = iota + 1 // a file was written, made, linked or moved here, or its mode changed
	FolderChanged                       // look at everything beneath again
	Gone                                // what was here is not any more
)

// WatchOptions are what a watcher is made with.
type WatchOptions struct {
	Root  string                 // absolute; "/" is the whole host
	Wants func(name string) bool // by base name of files
	Leave func(path string) bool // folders that are not watched
	State string                 // file in which it may keep what it needs to catch up
	Log   *slog.Logger
}

// WatchFunc makes a watcher. Nothing that happens after it returned is missed.
type WatchFunc func(WatchOptions) (Watcher, error)
