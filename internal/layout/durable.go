package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"sync"
)

// Hooks let tests stop the process at a step and observe what is synced. The zero value is for production.
type Hooks struct {
	// Step is called before every step that changes the state after a crash: "<label>.create", ".sync",
	// ".rename", ".dirsync", ".fromsync", ".remove". internal/tools/failpoint lists them all.
	Step func(step string)
	// Sync replaces fsync of an open file or directory. internal/tools/crashfs records its calls.
	Sync func(*os.File) error
	// MaxTemplateBytes is the maximum size of a template.json in bytes; 0 is 64 MiB.
	MaxTemplateBytes int64
}

// SafeDir is a directory that no name can leave, with writes that survive a crash. Names are relative and
// slash-separated. It may be used from many goroutines; the caller must not write one name concurrently.
type SafeDir struct {
	root  *os.Root
	hooks Hooks

	mu       sync.Mutex
	unsynced map[string]bool // directories whose sync failed or was not reached
}

// OpenSafeDir opens an existing directory.
func OpenSafeDir(dir string, hooks Hooks) (*SafeDir, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open directory: %w", err)
	}
	return &SafeDir{root: root, hooks: hooks, unsynced: map[string]bool{}}, nil
}

// Root returns the directory for reads and for files that need not be durable.
func (f *SafeDir) Root() *os.Root { return f.root }

// Close closes the directory.
func (f *SafeDir) Close() error { return f.root.Close() }

// AnnounceStep announces a step that the caller is about to take.
func (f *SafeDir) AnnounceStep(step string) {
	if f.hooks.Step != nil {
		f.hooks.Step(step)
	}
}

// Sync makes the content of an open file, or the names in an open directory, durable. The caller announces the step.
func (f *SafeDir) Sync(file *os.File) error { return f.SyncWith(file, (*os.File).Sync) }

// SyncWith is Sync with another system call.
func (f *SafeDir) SyncWith(file *os.File, do func(*os.File) error) error {
	if f.hooks.Sync != nil {
		return f.hooks.Sync(file)
	}
	return do(file)
}

// MkdirAll makes a directory and its parents durable.
func (f *SafeDir) MkdirAll(name string) error {
	if _, err := f.root.Stat(name); err == nil {
		return nil
	}
	if parent := path.Dir(name); parent != "." {
		if err := f.MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := f.root.Mkdir(name, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create directory: %w", err)
	}
	f.AnnounceStep("mkdir.dirsync")
	return f.SyncDir(path.Dir(name))
}

// CreateFile writes a new file and syncs it, but not its directory.
func (f *SafeDir) CreateFile(label, name string, data []byte) error {
	f.AnnounceStep(label + ".create")
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	if _, err = file.Write(data); err == nil {
		f.AnnounceStep(label + ".sync")
		err = f.Sync(file)
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// WriteFile replaces a file as a whole: after a crash it has its old or its new content.
func (f *SafeDir) WriteFile(label, name string, data []byte) error {
	temp := name + tempSuffix
	if err := f.CreateFile(label, temp, data); err != nil {
		_ = f.root.Remove(temp) // best effort: the next start removes leftovers too
		return err
	}
	return f.RenameInDir(label, temp, name)
}

// tempSuffix marks a file that a crash may leave and that nothing reads.
const tempSuffix = ".tmp"

// RenameInDir moves a file or directory within its directory and syncs that.
func (f *SafeDir) RenameInDir(label, from, to string) error {
	f.AnnounceStep(label + ".rename")
	if err := f.root.Rename(from, to); err != nil {
		return fmt.Errorf("rename %s: %w", from, err)
	}
	f.AnnounceStep(label + ".dirsync")
	return f.SyncDir(path.Dir(to))
}

// Rename moves a file or directory to another directory and syncs both directories.
func (f *SafeDir) Rename(label, from, to string) error {
	if err := f.RenameInDir(label, from, to); err != nil {
		f.markUnsynced(path.Dir(from)) // it may have moved
		return err
	}
	f.AnnounceStep(label + ".fromsync")
	return f.SyncDir(path.Dir(from))
}

// RemoveAll removes a file or directory with all below it; a missing one is not an error. A crash may leave
// part of it.
func (f *SafeDir) RemoveAll(label, name string) error {
	f.AnnounceStep(label + ".remove")
	if err := f.root.RemoveAll(name); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// SyncDir makes the names in a directory durable, including those whose earlier sync failed: an existing file
// may be one of them.
func (f *SafeDir) SyncDir(name string) error {
	err := f.syncDir(name)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil {
		f.markUnsynced(name)
		return err
	}
	return f.SyncPending()
}

// markUnsynced records a directory whose names may not be durable.
func (f *SafeDir) markUnsynced(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsynced[name] = true
}

// SyncPending syncs the directories whose earlier sync failed. A caller that finds nothing left to do must call it
// before it reports success.
func (f *SafeDir) SyncPending() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.unsynced {
		if err := f.syncDir(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		delete(f.unsynced, name)
	}
	return nil
}

func (f *SafeDir) syncDir(name string) error {
	dir, err := f.root.Open(name)
	if err != nil {
		return fmt.Errorf("open directory %s: %w", name, err)
	}
	defer dir.Close()
	if err := f.Sync(dir); err != nil {
		return fmt.Errorf("sync directory %s: %w", name, err)
	}
	return nil
}

// ReadDir lists a directory, sorted.
func (f *SafeDir) ReadDir(name string) ([]fs.DirEntry, error) {
	dir, err := f.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	sortEntries(entries)
	return entries, nil
}
