package catalog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const nonBlocking = unix.O_NONBLOCK // a pipe that took the place of a file does not block

// localFSTypes are the file systems of a Mac with its own files. Any other one is virtual or on another machine.
var localFSTypes = map[string]bool{"apfs": true, "hfs": true, "exfat": true, "msdos": true, "udf": true, "cd9660": true}

// datalessFlag marks a file whose content is in a cloud, and would be fetched.
const datalessFlag = 0x40000000

func openDir(name string) (fs.FS, io.Closer, error) {
	kind, err := fsType(name)
	if err != nil {
		return nil, nil, err
	}
	return openOSRoot(name, func(f *os.File) error { return skipReason(f, kind) }, refuseReason)
}

// skipReason returns why a directory is left out: by the type of its file system, as links of the system
// lead from one volume to another, or by its name where such links show all of its content
// elsewhere.
func skipReason(f *os.File, root string) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	kind := unix.ByteSliceToString(st.Fstypename[:])
	switch {
	case f.Name() == "/System/Volumes/Data":
		return &SkipDirError{Reason: "it is also seen from the root"}
	case kind == root || localFSTypes[kind]:
		return nil
	default:
		return &SkipDirError{Reason: fmt.Sprintf("a file system of type %s is not scanned", kind)}
	}
}

// refuseReason returns why a file is not opened.
func refuseReason(info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Flags&datalessFlag != 0 {
		return errors.New("the content of the file is in a cloud service and not on this machine")
	}
	return nil
}

func fsType(name string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(name, &st); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(st.Fstypename[:]), nil
}
