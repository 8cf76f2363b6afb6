package catalog

import (
	"io"
	"io/fs"
	"os"
	"time"
)

// Machine returns the whole of this machine as a tree, for a walk below a directory: virtual file
// systems and those on other machines are skipped, unless that directory itself is of that kind.
func Machine(from string) (fs.FS, io.Closer, error) {
	tree, closer, err := OpenDir("/")
	if b, ok := tree.(*openat2Dir); ok && err == nil {
		f, err := os.Open(from)
		if err != nil {
			closer.Close()
			return nil, nil, err
		}
		defer f.Close()
		if b.rootType, err = fileSystem(f); err != nil {
			closer.Close()
			return nil, nil, err
		}
	}
	return tree, closer, err
}

// times returns when a file changed, and its inode number.
func times(info fs.FileInfo) (time.Time, uint64) {
	if s, ok := info.(*status); ok {
		return time.Unix(s.st.Ctim.Unix()), s.st.Ino
	}
	return info.ModTime(), 0
}
