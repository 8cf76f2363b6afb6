package catalog

import (
	"io"
	"io/fs"
	"os"
	"time"
)

// OpenMachine returns the whole of this machine as a tree, for a walk below a directory: virtual file
// systems and those on other machines are skipped, unless that directory itself is of that kind.
func OpenMachine(from string) (fs.FS, io.Closer, error) {
	tree, closer, err := OpenDir("/")
	if b, ok := tree.(*openat2Dir); ok && err == nil {
		f, err := os.Open(from)
		if err != nil {
			closer.Close()
			return nil, nil, err
		}
		defer f.Close()
		if b.rootType, err = fsType(f); err != nil {
			closer.Close()
			return nil, nil, err
		}
	}
	return tree, closer, err
}

// changeTimeAndInode returns when a file changed, and its inode number.
func changeTimeAndInode(info fs.FileInfo) (time.Time, uint64) {
	if s, ok := info.(*statInfo); ok {
		return time.Unix(s.stat.Ctim.Unix()), s.stat.Ino
	}
	return info.ModTime(), 0
}
