package transfer

import (
	"fmt"
	"os"
	"reflect"
	"sync/atomic"

	"github.com/buildyard/buildyard/internal/blob"
)

const (
	// directBytes is the least that is written past the page cache: that waits for the disk, which for little is
	// longer than it takes the kernel to collect it.
	directBytes = 64 << 10
	// flushBytes is how much is written before the kernel is asked to begin putting it on disk.
	flushBytes = 4 << 20
)

// writer writes a target's file: long pieces past the page cache, where the system and the file system can,
// which costs a fraction of the processor time. Any goroutine may use it.
type writer struct {
	file    *os.File
	direct  *os.File    // nil: all goes through the page cache
	refused atomic.Bool // the file system did not take what it should
}

// newWriter takes a file of a folder that is open for writing; a file system without direct writing is no error.
func newWriter(dir *os.Root, name string, file *os.File) *writer {
	direct, err := openDirect(dir, name)
	if err != nil {
		direct = nil
	}
	return &writer{file: file, direct: direct}
}

// close closes what the writer opened.
func (w *writer) close() error {
	if w.direct == nil {
		return nil
	}
	return w.direct.Close()
}

// write writes a piece and tells how many of its bytes went past the page cache.
func (w *writer) write(p []byte, at int64) (direct int, err error) {
	whole := len(p) / blob.BlockSize * blob.BlockSize
	if w.direct != nil && whole >= directBytes && at%blob.BlockSize == 0 && aligned(p) && !w.refused.Load() {
		if direct, err = w.direct.WriteAt(p[:whole], at); err != nil {
			// Once more through the cache, whatever the reason: if it is a good one, it comes again.
			w.refused.Store(true)
			direct = 0
		}
	}
	if direct == len(p) {
		return direct, nil
	}
	if _, err := w.file.WriteAt(p[direct:], at+int64(direct)); err != nil {
		return direct, fmt.Errorf("write: %w", err)
	}
	return direct, nil
}

// aligned tells that the disk can read a piece of memory as it is. Large allocations begin at a page.
func aligned(p []byte) bool { return reflect.ValueOf(p).Pointer()%blob.BlockSize == 0 }
