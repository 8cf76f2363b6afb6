package host

import (
	"os"
	"unsafe" //nolint:depguard // the kernel takes this request by its address, and no package has it

	"golang.org/x/sys/unix"
)

// The request for the location of a file's extents: see Documentation/filesystems/fiemap.rst of the
// kernel.
const (
	block          = 4096
	fiemapRequest  = 0xc020660b
	fiemapLast     = 0x0001
	fiemapShared   = 0x2000
	extentsPerCall = 512     // extents
	fiemapMost     = 1 << 20 // extents, of a file of which more is not known
)

// fiemap is the request with space for its response.
type fiemap struct {
	start, length         uint64
	flags, mapped, expect uint32
	_                     uint32
	extents               [extentsPerCall]fiemapExtent
}

type fiemapExtent struct {
	logical, physical, length uint64
	_                         [2]uint64
	flags                     uint32
	_                         [3]uint32
}

// extents returns the number of bytes that only this file has, and the ranges of the disk that it
// shares with others; false when that cannot be determined.
func extents(path string) (own int64, shared []extent, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, nil, false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, nil, false
	}
	// Space preallocated behind the end is released when the file is closed.
	size := uint64(info.Size()+block-1) / block * block
	var m fiemap
	for range fiemapMost / extentsPerCall {
		if m.start >= size {
			return own, shared, true
		}
		m.length, m.mapped, m.expect = size-m.start, 0, extentsPerCall
		_, _, no := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiemapRequest, uintptr(unsafe.Pointer(&m))) //nolint:gosec // it stays where it is during the call
		if no != 0 || m.mapped > extentsPerCall {
			return 0, nil, false
		}
		if m.mapped == 0 {
			return own, shared, true
		}
		for _, e := range m.extents[:m.mapped] {
			e.length = min(e.length, size-min(e.logical, size))
			if e.flags&fiemapShared != 0 {
				shared = append(shared, extent{e.physical, e.physical + e.length})
			} else {
				own += int64(e.length)
			}
			if e.flags&fiemapLast != 0 {
				return own, shared, true
			}
			m.start = e.logical + e.length
		}
	}
	return 0, nil, false
}
