package blob

import (
	"errors"
	"os"
	"reflect"
)

// FileSource reads a file and skips its holes where the file system reports them.
type FileSource struct {
	*os.File
	Size int64

	direct *os.File // bypasses the page cache; nil without
}

var _ Source = FileSource{}

// NextData returns the next range that is not a hole, as reported by the file system.
func (s FileSource) NextData(off int64) (start, end int64, err error) {
	start, end, err = seekData(s.File, off, s.Size)
	if errors.Is(err, errors.ErrUnsupported) {
		return off, s.Size, nil
	}
	return start, end, err
}

// Uncached returns a source that reads data that is not in the page cache past it, where the system and the
// file system can. For a large file that is read once, this is several times as fast, and the cache keeps what
// others need. The file stays the caller's; release must be called before it is closed.
func (s FileSource) Uncached() (u FileSource, release func()) {
	f, err := openDirect(s.File)
	if err != nil || f == nil {
		return s, func() {} // read like any file
	}
	s.direct = f
	return s, func() { _ = f.Close() }
}

// ReadAt reads whole blocks into aligned memory past the page cache, unless the cache holds them; other reads
// use the cache.
func (s FileSource) ReadAt(p []byte, off int64) (int, error) {
	if s.direct == nil || !canReadDirect(p, off) || inPageCache(s.File, off, int64(len(p))) {
		return s.File.ReadAt(p, off)
	}
	n, _ := s.direct.ReadAt(p, off)
	if n == len(p) {
		return n, nil
	}
	// Read again through the cache, whatever the reason: a file system may refuse aligned reads, too.
	n = n / BlockSize * BlockSize
	rest, err := s.File.ReadAt(p[n:], off+int64(n))
	return n + rest, err
}

// canReadDirect reports whether a read can bypass the page cache unchanged. Large allocations begin at a page.
func canReadDirect(p []byte, off int64) bool {
	return len(p) > 0 && len(p)%BlockSize == 0 && off%BlockSize == 0 && reflect.ValueOf(p).Pointer()%BlockSize == 0
}
