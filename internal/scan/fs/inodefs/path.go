package inodefs

import (
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"
)

// MaxSymlinks is how many symbolic links may be on the path to one file, as on Linux.
const MaxSymlinks = 40

const maxPathParts = 1 << 16 // names on the path to one file

// Inode is an inode of a Volume.
type Inode interface {
	// ID returns its number.
	ID() uint64
	// IsLink reports whether it is a symbolic link.
	IsLink() bool
	// Attributes returns its mode, its size in bytes, and when its content was changed last.
	Attributes() (mode uint16, size int64, changed time.Time)
}

// Volume reads a file system. It is safe for concurrent use. parent is the number of the inode of the directory in
// which an inode was found; that of the root is its own.
type Volume[N Inode] interface {
	Root() (N, error)
	// Lookup returns an inode in a directory. fs.ErrNotExist: there is none of that name; syscall.ENOTDIR: it is not a
	// directory.
	Lookup(dir N, parent uint64, name string) (N, error)
	// Target returns the target of a symbolic link.
	Target(n N) (string, error)
	// Open opens a file or a directory. Errors are of the type *fs.PathError.
	Open(n N, parent uint64, name string) (fs.File, error)
	// ReadDir reads a directory. On an error, of the type *fs.PathError, it also returns the readable part.
	ReadDir(n N, parent uint64, name string) ([]fs.DirEntry, error)
}

// followMode reports whether a link at the end of a path is followed.
type followMode bool

const (
	followLast   followMode = true
	noFollowLast followMode = false
)

// Open opens the file or directory of a path.
func Open[N Inode](v Volume[N], name string) (fs.File, error) {
	n, parent, err := lookupPath(v, "open", name, followLast)
	if err != nil {
		return nil, err
	}
	return v.Open(n, parent, name)
}

// ReadDir reads the directory of a path.
func ReadDir[N Inode](v Volume[N], name string) ([]fs.DirEntry, error) {
	n, parent, err := lookupPath(v, "readdir", name, followLast)
	if err != nil {
		return nil, err
	}
	return v.ReadDir(n, parent, name)
}

// Stat describes the file of a path, and follows links.
func Stat[N Inode](v Volume[N], name string) (fs.FileInfo, error) {
	n, _, err := lookupPath(v, "stat", name, followLast)
	if err != nil {
		return nil, err
	}
	return Info(n, BaseName(name)), nil
}

// Lstat describes the file of a path, possibly a symbolic link.
func Lstat[N Inode](v Volume[N], name string) (fs.FileInfo, error) {
	n, _, err := lookupPath(v, "lstat", name, noFollowLast)
	if err != nil {
		return nil, err
	}
	return Info(n, BaseName(name)), nil
}

// ReadLink returns the unresolved target of the symbolic link of a path.
func ReadLink[N Inode](v Volume[N], name string) (string, error) {
	n, _, err := lookupPath(v, "readlink", name, noFollowLast)
	if err != nil {
		return "", err
	}
	target, err := v.Target(n)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return target, nil
}

// lookupPath resolves a path in the form of io/fs.
func lookupPath[N Inode](v Volume[N], op, name string, last followMode) (n N, parent uint64, err error) {
	if !isValidPath(name) {
		err = fs.ErrInvalid
	} else {
		n, parent, err = resolve(v, name, last)
	}
	if err != nil {
		return n, 0, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return n, parent, nil
}

// isValidPath is fs.ValidPath for names of any bytes.
func isValidPath(name string) bool {
	if name == "." {
		return true
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return !strings.Contains(name, "\x00")
}

// BaseName returns the last name of a path.
func BaseName(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// resolve returns the inode of a path, and the number of its directory. Links resolve within the tree only: the
// parent of its root is the root.
func resolve[N Inode](v Volume[N], name string, last followMode) (n N, parent uint64, err error) {
	if n, err = v.Root(); err != nil {
		return n, 0, err
	}
	way := []N{n} // from the root
	above := func() uint64 { return way[max(0, len(way)-2)].ID() }
	rest := splitPath(name)
	links := 0
	for steps := 0; len(rest) > 0; steps++ {
		part := rest[0]
		rest = rest[1:]
		if part == ".." {
			way = way[:max(1, len(way)-1)]
			continue
		}
		if n, err = v.Lookup(way[len(way)-1], above(), part); err != nil {
			return n, 0, err
		}
		if !n.IsLink() || len(rest) == 0 && last == noFollowLast {
			way = append(way, n)
			continue
		}
		if links++; links > MaxSymlinks || steps > maxPathParts {
			return n, 0, syscall.ELOOP
		}
		target, err := v.Target(n)
		if err != nil {
			return n, 0, err
		}
		if strings.HasPrefix(target, "/") {
			way = way[:1]
		}
		rest = append(splitPath(target), rest...)
	}
	return way[len(way)-1], above(), nil
}

// splitPath splits a path.
func splitPath(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(s string) bool { return s == "" || s == "." })
}
