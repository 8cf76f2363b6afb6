package catalog

import (
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// OpenMachine returns the whole of this machine as a tree, for a walk below a directory: virtual file
// systems and those on other machines are skipped, unless that directory itself is of that kind.
func OpenMachine(from string) (fs.FS, io.Closer, error) {
	kind, err := fsType(from)
	if err != nil {
		return nil, nil, err
	}
	return openOSRoot("/", func(f *os.File) error { return skipReason(f, kind) }, refuseReason)
}

// changeTimeAndInode returns when a file changed, and its inode number.
func changeTimeAndInode(info fs.FileInfo) (time.Time, uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctimespec.Unix()), st.Ino
	}
	return info.ModTime(), 0
}
