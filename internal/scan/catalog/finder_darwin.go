package catalog

import (
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Machine returns the whole of this machine as a tree, for a walk below a directory: virtual file
// systems and those on other machines are skipped, unless that directory itself is of that kind.
func Machine(from string) (fs.FS, io.Closer, error) {
	kind, err := fileSystem(from)
	if err != nil {
		return nil, nil, err
	}
	return openRooted("/", func(f *os.File) error { return skip(f, kind) }, refuse)
}

// times returns when a file changed, and its inode number.
func times(info fs.FileInfo) (time.Time, uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctimespec.Unix()), st.Ino
	}
	return info.ModTime(), 0
}
