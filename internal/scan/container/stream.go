package container

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Bounds on the decompressed bytes of a layer: gzip expands to at most 1,032 times, zstd to much more.
const (
	freeBytes       = 1 << 30
	maxExpansion    = 1100
	maxLayerBytes   = 64 << 30
	maxImageBytes   = 128 << 30 // of all layers
	maxWindowMemory = 128 << 20 // of zstd
)

// aheadBytes is the size of a buffer that one goroutine fills while another reads the one before.
const aheadBytes = 256 << 10

// layerStream reads a layer once, from its beginning: a goroutine reads and hashes the file, another one
// decompresses, and the caller parses the archive. Close ends them.
type layerStream struct {
	*tar.Reader
	data   *aheadReader // decompressed
	blob   *aheadReader
	hash   *hashReader
	sum    *hashReader // of data; nil: not verified
	source layerSource
	close  func()
}

// openLayer opens a layer. Its digest is computed when it is read for the first time, and its decompressed bytes are
// taken from left then; nil: it is read again.
func openLayer(ctx context.Context, s blobStore, l layerSource, left *atomic.Int64) (*layerStream, error) {
	if l.digest != "" {
		if _, ok := l.digest.newHash(); !ok {
			return nil, fmt.Errorf("invalid digest %.100q", string(l.digest))
		}
	}
	f, err := s.open(l.name)
	if err != nil {
		return nil, err
	}
	out := &layerStream{source: l, hash: &hashReader{r: contextReader{ctx, f}}}
	if left != nil && l.digest != "" {
		out.hash.h, _ = l.digest.newHash()
	}
	out.blob = newAheadReader(out.hash)
	plain, done, err := decompress(bufio.NewReaderSize(out.blob, 64<<10))
	if err != nil {
		out.blob.stop()
		return nil, errors.Join(err, f.Close())
	}
	plain = &expansionReader{r: plain, left: min(maxLayerBytes, freeBytes+maxExpansion*f.size), leftOfAll: left}
	if h, ok := l.diffID.newHash(); left != nil && l.digest == "" && ok {
		out.sum = &hashReader{r: plain, h: h}
		plain = out.sum
	}
	out.data = newAheadReader(plain)
	out.Reader = tar.NewReader(out.data)
	out.close = func() {
		out.blob.stop() // it ends the one that reads from it
		out.data.stop()
		done()
		_ = f.Close() // read only
	}
	return out, nil
}

// finish reads what follows the archive and verifies the digest.
func (s *layerStream) finish() error {
	if _, err := s.data.skip(maxLayerBytes); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if _, err := s.blob.skip(maxLayerBytes); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch {
	case s.hash.h != nil:
		return s.source.digest.compare(s.hash.h)
	case s.sum != nil:
		return s.source.diffID.compare(s.sum.h)
	}
	return nil
}

// decompress returns the content of a layer whose compression its first bytes tell.
func decompress(r *bufio.Reader) (plain io.Reader, done func(), err error) {
	done = func() {}
	head, _ := r.Peek(4) // an error is found again
	switch {
	case strings.HasPrefix(string(head), gzipMagic):
		plain, err = gzip.NewReader(r)
	case string(head) == zstdMagic || isSkippable(head):
		var z *zstd.Decoder
		z, err = zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindowMemory), zstd.WithDecoderMaxMemory(maxLayerBytes))
		if err == nil {
			plain, done = z, z.Close
		}
	default:
		plain = r
	}
	return plain, done, err
}

// isSkippable reports whether a skippable frame of zstd begins a file.
func isSkippable(head []byte) bool {
	return len(head) == 4 && head[0]&0xf0 == 0x50 && string(head[1:]) == "\x2a\x4d\x18"
}

var errExpansion = errors.New("it expands to too many bytes")

// expansionReader fails after a number of bytes, of a layer or of all.
type expansionReader struct {
	r         io.Reader
	left      int64
	leftOfAll *atomic.Int64 // nil: no limit
}

func (e *expansionReader) Read(p []byte) (int, error) {
	if e.left <= 0 || e.leftOfAll != nil && e.leftOfAll.Load() <= 0 {
		return 0, errExpansion
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if e.leftOfAll != nil {
		e.leftOfAll.Add(-int64(n))
	}
	return n, err
}

// contextReader ends with a context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// hashReader hashes what is read; without a hash it only reads.
type hashReader struct {
	r io.Reader
	h hash.Hash
}

func (h *hashReader) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if h.h != nil {
		h.h.Write(p[:n])
	}
	return n, err
}

// aheadReader reads in a separate goroutine, two buffers ahead.
type aheadReader struct {
	full, free chan aheadBuffer
	stopped    chan struct{}
	ended      chan struct{}
	stopOnce   sync.Once
	current    aheadBuffer
	at         int
	read       int64 // bytes that were read or skipped
}

// aheadBuffer is what was read, and the error after it.
type aheadBuffer struct {
	data []byte
	err  error
}

const aheadBuffers = 4

func newAheadReader(r io.Reader) *aheadReader {
	a := &aheadReader{
		full: make(chan aheadBuffer, aheadBuffers), free: make(chan aheadBuffer, aheadBuffers),
		stopped: make(chan struct{}), ended: make(chan struct{}),
	}
	for range aheadBuffers - 1 {
		a.free <- aheadBuffer{data: make([]byte, aheadBytes)}
	}
	go a.fill(r)
	return a
}

func (a *aheadReader) fill(r io.Reader) {
	defer close(a.ended)
	for {
		var b aheadBuffer
		select {
		case b = <-a.free:
		case <-a.stopped:
			return
		}
		n, err := readMost(r, b.data[:aheadBytes])
		b = aheadBuffer{b.data[:n], err}
		select {
		case a.full <- b:
		case <-a.stopped:
			return
		}
		if err != nil {
			return
		}
	}
}

// readMost fills a buffer, or reads until an error, which is io.EOF at the end.
func readMost(r io.Reader, p []byte) (n int, err error) {
	for empty := 0; n < len(p) && err == nil; empty++ {
		var m int
		if m, err = r.Read(p[n:]); m > 0 {
			n, empty = n+m, 0
		}
		if err == nil && empty > 100 {
			err = io.ErrNoProgress
		}
	}
	return n, err
}

// stop ends the goroutine and waits for it. A read in it must end on its own.
func (a *aheadReader) stop() {
	a.stopOnce.Do(func() { close(a.stopped) })
	<-a.ended
}

// next makes the next buffer the current one.
func (a *aheadReader) next() error {
	if a.current.err != nil {
		return a.current.err
	}
	if a.current.data != nil {
		a.free <- a.current
	}
	select {
	case a.current = <-a.full:
		a.at = 0
		return nil
	case <-a.stopped:
		a.current = aheadBuffer{err: io.ErrClosedPipe}
		return a.current.err
	}
}

func (a *aheadReader) Read(p []byte) (int, error) {
	for a.at == len(a.current.data) {
		if err := a.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, a.current.data[a.at:])
	a.at, a.read = a.at+n, a.read+int64(n)
	return n, nil
}

// skip skips up to n bytes.
func (a *aheadReader) skip(n int64) (skipped int64, err error) {
	for skipped < n {
		for a.at == len(a.current.data) {
			if err := a.next(); err != nil {
				return skipped, err
			}
		}
		m := int(min(n-skipped, int64(len(a.current.data)-a.at)))
		a.at, a.read = a.at+m, a.read+int64(m)
		skipped += int64(m)
	}
	return skipped, nil
}

// Seek skips bytes: archive/tar uses it for what it does not read, which copies nothing.
func (a *aheadReader) Seek(off int64, whence int) (int64, error) {
	if whence != io.SeekCurrent || off < 0 {
		return 0, errors.New("only forward")
	}
	_, err := a.skip(off)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // archive/tar would take it for the end of the archive
	}
	return off, err
}
