package blob

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// StartWriteback asks the kernel to begin writing a range now. Without it, dirty pages pile up and a later sync
// runs at a fraction of the disk's rate. It ignores errors of a kernel or file system that cannot do it.
func StartWriteback(f *os.File, off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}

// PunchHole frees the space of a range of a file; the file keeps its length. A file system without support is
// not an error.
func PunchHole(f *os.File, off, n int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	if err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("punch hole: %w", err)
	}
	return nil
}

// SyncData syncs a file's data to stable storage.
func SyncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// openDirect opens a file once more, for reading past the page cache.
func openDirect(f *os.File) (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDONLY|unix.O_DIRECT, 0)
}

// inPageCache reports whether the page cache holds the whole range. It returns false if the kernel cannot tell.
func inPageCache(f *os.File, off, n int64) bool {
	var c unix.Cachestat_t
	err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{Off: uint64(off), Len: uint64(n)}, &c, 0)
	return err == nil && c.Cache*uint64(os.Getpagesize()) >= uint64(n)
}

func seekData(f *os.File, off, size int64) (start, end int64, err error) {
	start, err = unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, size, nil
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return 0, 0, errors.ErrUnsupported
	}
	if err != nil {
		return 0, 0, fmt.Errorf("seek data: %w", err)
	}
	end, err = unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
	if err != nil {
		return 0, 0, fmt.Errorf("seek hole: %w", err)
	}
	return min(start, size), min(end, size), nil
}
