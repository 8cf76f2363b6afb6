// Package atomicfile writes files beside the place that they are for, and puts them there as a
// whole. What a process that was killed has left is removed by the next that writes there.
//
// It does not keep two writers of one file apart: the last one stays.
//
// Invariant: a file that is being written is locked by its process, and what is locked, has
// another name than its own ones, or belongs to another user is never removed.
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
	prefix = ".buildyard-"
	suffix = ".tmp"
)

var ours = regexp.MustCompile(`^\.buildyard-[0-9a-f]{16}\.tmp$`)

// File is a file that is being written. One goroutine uses it.
type File struct {
	*os.File
	target string // "" when it is for nothing
}

// Create begins a file that Commit puts at a path. What others that were killed have left in
// the directory is removed. An error names the path, as nobody asked for the name beside it.
func Create(path string) (*File, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return nil, &fs.PathError{Op: "create", Path: path, Err: errors.New("it is a folder")}
	}
	f, err := locked(filepath.Dir(path))
	if err != nil {
		if at, ok := errors.AsType[*fs.PathError](err); ok {
			err = at.Err
		}
		return nil, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	return &File{f, path}, nil
}

// CreateUnnamed returns a file without a name, whose space is free as soon as it is closed.
func CreateUnnamed(folder string) (*os.File, error) {
	f, err := locked(folder)
	if err != nil {
		return nil, err
	}
	return f, errors.Join(os.Remove(f.Name()))
}

// Write is that of the file. Errors of all that writes name the path that the file is for.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.named(err)
}

// WriteString is that of the file.
func (f *File) WriteString(s string) (int, error) {
	n, err := f.File.WriteString(s)
	return n, f.named(err)
}

// ReadFrom is that of the file.
func (f *File) ReadFrom(r io.Reader) (int64, error) {
	n, err := f.File.ReadFrom(r)
	return n, f.named(err)
}

// named returns an error about the file with the path that it is for.
func (f *File) named(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok && at.Path == f.Name() {
		return &fs.PathError{Op: at.Op, Path: f.target, Err: at.Err}
	}
	return err
}

// Commit puts the file at its path, on the disk, and closes it. When that fails, what was at
// the path is as it was. Who may read it, may read what comes in its place, and nobody else.
func (f *File) Commit() error {
	if err := put(f.File, f.target); err != nil { // before the lock ends
		f.Discard()
		return f.named(err)
	}
	return errors.Join(f.Close(), syncFolder(f.target))
}

// Rename puts an open file that is in the directory of a path there, as Commit does. When that
// fails, both files are as they were.
func Rename(f *os.File, path string) error {
	if err := put(f, path); err != nil {
		return err
	}
	return syncFolder(path)
}

func put(f *os.File, path string) error {
	if err := f.Chmod(permissions(path)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// umask is that of the process. It can only be read by setting it, which is harmless before
// there are other goroutines.
var umask = func() fs.FileMode {
	old := unix.Umask(0o077)
	unix.Umask(old)
	return fs.FileMode(old)
}()

// permissions are those of the file that is there, or those of a new one.
func permissions(path string) fs.FileMode {
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() {
		return st.Mode().Perm()
	}
	return 0o644 &^ umask
}

// Discard removes the file; after Commit it does nothing.
func (f *File) Discard() {
	if f.Close() == nil {
		_ = os.Remove(f.Name())
	}
}

func syncFolder(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// attempts is how often a name is tried before something else must be wrong.
const attempts = 100

// locked makes a file that is locked. Between the two steps another process may take it for
// one that was left, and remove it: then another is made.
func locked(folder string) (*os.File, error) {
	sweep(folder)
	for range attempts {
		var random [8]byte
		_, _ = rand.Read(random[:]) // it never fails
		name := filepath.Join(folder, prefix+hex.EncodeToString(random[:])+suffix)
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		err = lock(f)
		if errors.Is(err, unix.EWOULDBLOCK) || err == nil && !is(f, name) {
			_ = f.Close()
			continue
		}
		return f, nil // a file system that knows no locks keeps what is left
	}
	return nil, fmt.Errorf("no file could be made in %s", folder)
}

func lock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// is reports whether a name is that of an open file.
func is(f *os.File, name string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(name)
	return err == nil && os.SameFile(a, b)
}

// sweep removes what processes that have ended left in a directory.
func sweep(folder string) {
	d, err := os.Open(folder)
	if err != nil {
		return
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1000)
		for _, name := range names {
			if ours.MatchString(name) {
				removeLeft(filepath.Join(folder, name))
			}
		}
		if err != nil {
			return
		}
	}
}

// removeLeft removes a file of this user that nobody has locked.
func removeLeft(name string) {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() {
		return
	}
	if lock(f) == nil && is(f, name) {
		_ = os.Remove(name)
	}
}
