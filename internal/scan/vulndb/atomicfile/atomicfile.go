// Package atomicfile writes new files next to their target path, and renames them there as a whole.
// The next writer in a directory removes files that killed processes have left.
//
// It does not coordinate two writers of one file: the last one wins.
//
// Invariant: a file that is being written is locked by its process. A file that is locked, has
// another name than those of this package, or belongs to another user is never removed.
package atomicfile

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"
)

// Names of files that are being written: the prefix, 16 hex digits and the suffix.
const (
	tempPrefix = ".buildyard-"
	tempSuffix = ".tmp"
)

var tempNamePattern = regexp.MustCompile(`^\.buildyard-[0-9a-f]{16}\.tmp$`)

// File is a file that is being written. One goroutine uses it.
type File struct {
	*os.File
	target string // "" when it has no target
}

// Create creates a file that Commit puts at a path. Files that killed processes have left in the
// directory are removed. Errors name the path, not the temporary name.
func Create(path string) (*File, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return nil, &fs.PathError{Op: "create", Path: path, Err: errors.New("is a directory")}
	}
	f, err := createLocked(filepath.Dir(path))
	if err != nil {
		if at, ok := errors.AsType[*fs.PathError](err); ok {
			err = at.Err
		}
		return nil, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	return &File{f, path}, nil
}

// CreateUnnamed returns a file without a name, whose space is freed when it is closed.
func CreateUnnamed(dir string) (*os.File, error) {
	f, err := createLocked(dir)
	if err != nil {
		return nil, err
	}
	return f, errors.Join(os.Remove(f.Name()))
}

// Write is that of the file. Errors of all write methods name the target path.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.errorWithTarget(err)
}

// WriteString is that of the file.
func (f *File) WriteString(s string) (int, error) {
	n, err := f.File.WriteString(s)
	return n, f.errorWithTarget(err)
}

// ReadFrom is that of the file.
func (f *File) ReadFrom(r io.Reader) (int64, error) {
	n, err := f.File.ReadFrom(r)
	return n, f.errorWithTarget(err)
}

// errorWithTarget replaces the path in an error about the file by its target.
func (f *File) errorWithTarget(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok && at.Path == f.Name() {
		return &fs.PathError{Op: at.Op, Path: f.target, Err: at.Err}
	}
	return err
}

// Commit syncs the file, renames it to its path, and closes it. On failure, the old file at the
// path is unchanged. The new file has the permissions of the old one.
func (f *File) Commit() error {
	if err := renameInto(f.File, f.target); err != nil { // before the lock ends
		f.Discard()
		return f.errorWithTarget(err)
	}
	return errors.Join(f.Close(), syncDir(f.target))
}

// Rename renames an open file in the directory of a path to it, as Commit does. On failure, both
// files are unchanged.
func Rename(f *os.File, path string) error {
	if err := renameInto(f, path); err != nil {
		return err
	}
	return syncDir(path)
}

func renameInto(f *os.File, path string) error {
	if err := f.Chmod(permissionsFor(path)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// processUmask is that of the process. Reading it requires setting it, which is harmless before there are
// other goroutines.
var processUmask = func() fs.FileMode {
	old := unix.Umask(0o077)
	unix.Umask(old)
	return fs.FileMode(old)
}()

// permissionsFor returns those of the existing file, or those of a new one.
func permissionsFor(path string) fs.FileMode {
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() {
		return st.Mode().Perm()
	}
	return 0o644 &^ processUmask
}

// Discard removes the file; after Commit it does nothing.
func (f *File) Discard() {
	if f.Close() == nil {
		_ = os.Remove(f.Name())
	}
}

func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// maxNameAttempts is how many names are tried before it fails.
const maxNameAttempts = 100

// createLocked creates a file and locks it. Between the two steps another process may mistake it for an
// abandoned one, and remove it: then another is created.
func createLocked(dir string) (*os.File, error) {
	pruneAbandoned(dir)
	for range maxNameAttempts {
		var random [8]byte
		_, _ = rand.Read(random[:]) // it never fails
		name := filepath.Join(dir, tempPrefix+hex.EncodeToString(random[:])+tempSuffix)
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		err = lockFile(f)
		if errors.Is(err, unix.EWOULDBLOCK) || err == nil && !hasName(f, name) {
			_ = f.Close()
			continue
		}
		return f, nil // a file system without locks keeps abandoned files
	}
	return nil, fmt.Errorf("cannot create a temporary file in %s", dir)
}

func lockFile(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// hasName reports whether a name is that of an open file.
func hasName(f *os.File, name string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(name)
	return err == nil && os.SameFile(a, b)
}

// pruneAbandoned removes the files that ended processes left in a directory.
func pruneAbandoned(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1000)
		for _, name := range names {
			if tempNamePattern.MatchString(name) {
				removeAbandoned(filepath.Join(dir, name))
			}
		}
		if err != nil {
			return
		}
	}
}

// removeAbandoned removes a file of this user that no process has locked.
func removeAbandoned(name string) {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() {
		return
	}
	if lockFile(f) == nil && hasName(f, name) {
		_ = os.Remove(name)
	}
}
