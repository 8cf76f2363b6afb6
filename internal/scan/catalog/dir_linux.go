package catalog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

const nonBlocking = unix.O_NONBLOCK // a pipe that took the place of a file does not block

// openat2Dir is a directory whose names the kernel resolves as if it were the root of the system.
// That takes one call however deep they are.
type openat2Dir struct {
	root     *os.File
	rootType int64 // of its file system
}

var (
	_ fs.ReadDirFS  = (*openat2Dir)(nil)
	_ fs.StatFS     = (*openat2Dir)(nil)
	_ fs.ReadLinkFS = (*openat2Dir)(nil)
)

func openDir(name string) (fs.FS, io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, nil, err
	}
	b := &openat2Dir{root: f}
	b.rootType, err = fsType(f)
	if err == nil {
		var probe *os.File
		if probe, err = b.open(".", unix.O_DIRECTORY); err == nil {
			probe.Close()
			return b, f, nil
		}
	}
	f.Close()
	// An old kernel, or one configured to refuse the call.
	return openOSRoot(name, nil, nil)
}

// open opens a name. The kernel demands another attempt when a rename happened at the same time.
func (b *openat2Dir) open(name string, flags uint64) (*os.File, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | flags,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	if !isValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(int(b.root.Fd()), name, how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) && try < 20:
		default:
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// Open opens a file or directory.
func (b *openat2Dir) Open(name string) (fs.File, error) {
	f, err := b.open(name, unix.O_NOCTTY|nonBlocking)
	if err != nil {
		return nil, err
	}
	return wrapFile(b, name, f)
}

// Stat follows links.
func (b *openat2Dir) Stat(name string) (fs.FileInfo, error) {
	f, err := b.open(name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// Lstat follows none in the last part of a name.
func (b *openat2Dir) Lstat(name string) (fs.FileInfo, error) {
	var st unix.Stat_t
	if !isValidPath(name) {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrInvalid}
	}
	for {
		err := unix.Fstatat(int(b.root.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil {
			return &statInfo{name: path.Base(name), stat: st}, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
		}
	}
}

// ReadLink returns the unresolved target of a link.
func (b *openat2Dir) ReadLink(name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(b.root.Fd()), name, buf)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return string(buf[:n]), nil
}

// ReadDir lists a directory in no order.
func (b *openat2Dir) ReadDir(name string) ([]fs.DirEntry, error) {
	f, err := b.open(name, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := b.skipReason(f); err != nil {
		return nil, err
	}
	return listEntries(b, name, f, -1)
}

// virtualFSTypes are the file systems without files of this machine.
var virtualFSTypes = map[int64]string{
	unix.PROC_SUPER_MAGIC:    "proc",
	unix.SYSFS_MAGIC:         "sysfs",
	unix.DEVPTS_SUPER_MAGIC:  "devpts",
	unix.CGROUP_SUPER_MAGIC:  "cgroup",
	unix.CGROUP2_SUPER_MAGIC: "cgroup2",
	unix.DEBUGFS_MAGIC:       "debugfs",
	unix.TRACEFS_MAGIC:       "tracefs",
	unix.SECURITYFS_MAGIC:    "securityfs",
	unix.BPF_FS_MAGIC:        "bpf",
	unix.PSTOREFS_MAGIC:      "pstore",
	unix.EFIVARFS_MAGIC:      "efivarfs",
	unix.BINFMTFS_MAGIC:      "binfmt_misc",
	unix.SELINUX_MAGIC:       "selinuxfs",
	unix.HUGETLBFS_MAGIC:     "hugetlbfs",
	unix.AUTOFS_SUPER_MAGIC:  "autofs",
	unix.NFS_SUPER_MAGIC:     "nfs",
	unix.SMB_SUPER_MAGIC:     "smb",
	unix.SMB2_SUPER_MAGIC:    "smb2",
	unix.CIFS_SUPER_MAGIC:    "cifs",
	unix.CODA_SUPER_MAGIC:    "coda",
	unix.AFS_SUPER_MAGIC:     "afs",
	unix.CEPH_SUPER_MAGIC:    "ceph",
	unix.V9FS_MAGIC:          "9p",
}

// skipReason returns why a directory is left out: by the type of its file system, as device numbers
// reveal little.
func (b *openat2Dir) skipReason(f *os.File) error {
	kind, err := fsType(f)
	if err != nil || kind == b.rootType {
		return err
	}
	if name, ok := virtualFSTypes[kind]; ok {
		return &SkipDirError{Reason: fmt.Sprintf("a file system of type %s is not scanned", name)}
	}
	return nil
}

func fsType(f *os.File) (int64, error) {
	var st unix.Statfs_t
	for {
		err := unix.Fstatfs(int(f.Fd()), &st)
		if !errors.Is(err, unix.EINTR) {
			return int64(st.Type), err
		}
	}
}

// statInfo describes an entry.
type statInfo struct {
	name string
	stat unix.Stat_t
}

func (s *statInfo) Name() string       { return s.name }
func (s *statInfo) Size() int64        { return s.stat.Size }
func (s *statInfo) ModTime() time.Time { return time.Unix(s.stat.Mtim.Unix()) }
func (s *statInfo) IsDir() bool        { return s.Mode().IsDir() }
func (s *statInfo) Sys() any           { return nil }

func (s *statInfo) Mode() fs.FileMode {
	mode := fs.FileMode(s.stat.Mode & 0o777)
	switch s.stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFREG:
	default:
		mode |= fs.ModeIrregular
	}
	return mode
}
