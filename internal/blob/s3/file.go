package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/s3store"
)

const (
	// maxStreamBytes is the most that one request of a sequential read fetches.
	maxStreamBytes = 64 << 20
	// readAttempts is how often a read is tried that makes no progress.
	readAttempts = 5
)

// file reads a layer by ranges. ReadAt may be called from many goroutines; Read and Seek from one.
type file struct {
	ctx    context.Context
	bucket *s3store.Bucket
	name   string
	layer  layerObject

	// The state of Read and Seek.
	off   int64
	limit int64         // offset up to which the caller is going to read; 0: unknown
	body  io.ReadCloser // at off; nil: none

	mu      sync.Mutex // guards the fields below
	buffer  []byte     // newest bytes of ReadAt
	buffOff int64      // of buffer
}

var _ blob.File = (*file)(nil)

func newFile(ctx context.Context, bucket *s3store.Bucket, name string, l layerObject) *file {
	return &file{ctx: ctx, bucket: bucket, name: name, layer: l}
}

// Close implements blob.File.
func (f *file) Close() error { return f.closeBody() }

func (f *file) closeBody() error {
	body := f.body
	f.body = nil
	if body == nil {
		return nil
	}
	return body.Close()
}

// Seek implements blob.File.
func (f *file) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += f.off
	case io.SeekEnd:
		off += f.layer.size
	}
	if off < 0 {
		return 0, fmt.Errorf("seek to %d: %w", off, fs.ErrInvalid)
	}
	if off != f.off {
		_ = f.closeBody() // the rest of the response is not needed
	}
	f.off, f.limit = off, 0
	return off, nil
}

// ExpectRead announces that n bytes are going to be read, so that one request fetches them.
func (f *file) ExpectRead(n int64) { f.limit = f.off + n }

// Read implements blob.File.
func (f *file) Read(p []byte) (int, error) {
	if f.off >= f.layer.size {
		return 0, io.EOF
	}
	for attempt := 1; ; attempt++ {
		n, err := f.readBody(p)
		f.off += int64(n)
		if n > 0 || err == nil && len(p) == 0 {
			return n, nil
		}
		_ = f.closeBody()
		if attempt >= readAttempts || errors.Is(err, fs.ErrNotExist) || f.ctx.Err() != nil {
			return 0, err
		}
		if err := sleep(f.ctx, time.Duration(attempt)*50*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// readBody reads from the open response, or from a new one.
func (f *file) readBody(p []byte) (int, error) {
	if f.body == nil {
		n := f.bucket.Options().ReadBufferSize
		if f.limit > f.off {
			n = min(f.limit-f.off, maxStreamBytes)
		}
		body, err := f.bucket.OpenRange(f.ctx, f.layer.key, f.off, min(n, f.layer.size-f.off))
		if err != nil {
			return 0, err
		}
		f.body = body
	}
	n, err := f.body.Read(p)
	if errors.Is(err, io.EOF) { // of this response; the next read begins another one
		return n, errors.Join(f.closeBody(), errCut(n))
	}
	return n, err
}

// errCut is the error of a response that ended without bytes.
func errCut(n int) error {
	if n > 0 {
		return nil
	}
	return io.ErrUnexpectedEOF
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// ReadAt implements blob.File. Small reads fetch what follows, too.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read at %d: %w", off, fs.ErrInvalid)
	}
	if off >= f.layer.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), f.layer.size-off)]
	if err := f.fill(want, off); err != nil {
		return 0, err
	}
	if len(want) < len(p) {
		return len(want), io.EOF
	}
	return len(want), nil
}

func (f *file) fill(p []byte, off int64) error {
	size := min(f.bucket.Options().ReadBufferSize, f.layer.size-off)
	if int64(len(p)) >= size {
		return f.fetch(p, off)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if off < f.buffOff || off+int64(len(p)) > f.buffOff+int64(len(f.buffer)) {
		f.buffer = append(f.buffer[:0], make([]byte, size)...)
		if err := f.fetch(f.buffer, off); err != nil {
			f.buffer = nil
			return err
		}
		f.buffOff = off
	}
	copy(p, f.buffer[off-f.buffOff:])
	return nil
}

// fetch fills p from the bucket, and continues after a response that was cut.
func (f *file) fetch(p []byte, off int64) error {
	for attempt := 1; ; attempt++ {
		n, err := f.fetchOnce(p, off)
		if p, off = p[n:], off+int64(n); len(p) == 0 {
			return nil
		}
		if n > 0 {
			attempt = 0
		}
		if attempt >= readAttempts || errors.Is(err, fs.ErrNotExist) || f.ctx.Err() != nil {
			return fmt.Errorf("read layer %s at %d: %w", f.name, off, err)
		}
		if err := sleep(f.ctx, time.Duration(attempt)*50*time.Millisecond); err != nil {
			return err
		}
	}
}

func (f *file) fetchOnce(p []byte, off int64) (int, error) {
	body, err := f.bucket.OpenRange(f.ctx, f.layer.key, off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	n, err := io.ReadFull(body, p)
	return n, errors.Join(err, body.Close())
}

// Stat implements blob.File.
func (f *file) Stat() (fs.FileInfo, error) { return fileInfo{f}, nil }

// fileInfo describes a layer.
type fileInfo struct{ file *file }

var _ fs.FileInfo = fileInfo{}

func (i fileInfo) Name() string       { return i.file.name }
func (i fileInfo) Size() int64        { return i.file.layer.size }
func (i fileInfo) Mode() fs.FileMode  { return 0o440 }
func (i fileInfo) ModTime() time.Time { return i.file.layer.modified }
func (i fileInfo) IsDir() bool        { return false }
func (i fileInfo) Sys() any           { return nil }
