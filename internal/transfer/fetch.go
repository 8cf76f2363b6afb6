package transfer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/buildyard/buildyard/internal/blob"
)

// flushBytes is how much is written before the kernel is asked to begin writing it to disk.
const flushBytes = 4 << 20

// fetcher fetches spans over one connection at a time. Its buffers take 2 MiB.
type fetcher struct {
	p       *pull
	scratch []byte
	raw     []byte
	dirty   blob.Run // range of the file that was written since the kernel was asked to write
}

func newFetcher(p *pull) *fetcher {
	return &fetcher{p: p, scratch: make([]byte, blob.FrameSize), raw: make([]byte, 0, blob.FrameSize)}
}

// fetch transfers a span. A cut connection or a damaged frame costs the rest of the span: the next attempt
// begins behind the last written frame.
func (f *fetcher) fetch(ctx context.Context, s span) error {
	urls := s.t.layers[s.layer].URLs
	attempt := 0
	err := f.p.c.retryProgress(ctx, "GET "+s.t.name, func() (bool, error) {
		before := s.first
		address := urls[attempt%len(urls)]
		attempt++
		err := f.once(ctx, address, &s)
		return s.first > before, err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", s.t.name, err)
	}
	f.flush(s.t)
	return nil
}

func (f *fetcher) once(ctx context.Context, address string, s *span) error {
	_, first := s.t.frame(s.first)
	_, last := s.t.frame(s.last - 1)
	at := first.Offset
	return f.p.c.ranged(ctx, address, at, last.Offset+int64(last.Stored)-at, func(body io.Reader) error {
		for s.first < s.last {
			_, frame := s.t.frame(s.first)
			for ; at < frame.Offset; at += min(frame.Offset-at, int64(len(f.scratch))) {
				if _, err := io.ReadFull(body, f.scratch[:min(frame.Offset-at, int64(len(f.scratch)))]); err != nil {
					return fmt.Errorf("%w: %w", errTransient, err)
				}
			}
			if err := f.frame(body, s, frame); err != nil {
				return err
			}
			at += int64(frame.Stored)
		}
		return nil
	})
}

// frame reads, verifies and writes the next frame of a span.
func (f *fetcher) frame(body io.Reader, s *span, frame blob.Frame) error {
	stored := f.scratch[:frame.Stored]
	if _, err := io.ReadFull(body, stored); err != nil {
		return fmt.Errorf("%w: %w", errTransient, err)
	}
	raw, err := blob.Unpack(frame, stored, f.raw)
	if err != nil {
		return fmt.Errorf("%w: %w", errTransient, err)
	}
	if err := f.write(s.t, s.first, raw); err != nil {
		return err
	}
	s.first++
	f.p.moved.Add(int64(frame.Stored))
	f.p.meter.add(int64(frame.Stored))
	return nil
}

// write writes the ranges of a verified frame that the plan uses to their positions.
func (f *fetcher) write(t *target, frame int, raw []byte) error {
	var batch blob.FramePlacement // contiguous placements, in the frame and on the disk
	for piece := range t.plan.Pieces(frame) {
		if batch.Off+batch.Len == piece.Off && batch.At+int(batch.Len) == piece.At {
			batch.Len += piece.Len
			continue
		}
		if err := f.put(t, batch, raw); err != nil {
			return err
		}
		batch = piece
	}
	if err := f.put(t, batch, raw); err != nil {
		return err
	}
	return t.wrote(frame, len(raw))
}

func (f *fetcher) put(t *target, piece blob.FramePlacement, raw []byte) error {
	for piece.Len > 0 {
		at, n := t.place(piece.Off, piece.Len)
		if n == 0 {
			return fmt.Errorf("byte %d of the disk is not in the overlay", piece.Off)
		}
		if _, err := t.file.WriteAt(raw[piece.At:piece.At+int(n)], at); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		f.wrote(t, at, n)
		piece = blob.FramePlacement{Off: piece.Off + n, Len: piece.Len - n, At: piece.At + int(n)}
	}
	return nil
}

// wrote records a range that the kernel has to write to disk.
func (f *fetcher) wrote(t *target, at, n int64) {
	if f.dirty.Len > 0 && at < f.dirty.Off {
		f.flush(t)
	}
	if f.dirty.Len == 0 {
		f.dirty.Off = at
	}
	if f.dirty.Len = at + n - f.dirty.Off; f.dirty.Len >= flushBytes {
		f.flush(t)
	}
}

func (f *fetcher) flush(t *target) {
	if f.dirty.Len > 0 {
		blob.WriteBehind(t.file, f.dirty.Off, f.dirty.Len)
	}
	f.dirty = blob.Run{}
}

// ranged requests one bounded range and passes its body to use, which must read all of it.
func (c *Client) ranged(ctx context.Context, address string, off, length int64, use func(io.Reader) error) error {
	ctx, w := c.watch(ctx)
	defer w.close()
	ref, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("parse URL of a layer: %w", err)
	}
	req, err := c.request(ctx, http.MethodGet, c.resolve(ref), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+length-1))
	resp, err := c.send(req)
	if err != nil {
		return cut(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusPartialContent || resp.ContentLength >= 0 && resp.ContentLength != length {
		return failure(resp)
	}
	if err := use(w.reader(resp.Body)); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cut(ctx, err)
		}
		return err
	}
	// Read to its end, so that the connection is used again.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1))
	return nil
}

// resolve returns the whole address of a layer: relative ones are below the registry's own address.
func (c *Client) resolve(ref *url.URL) string {
	if ref.IsAbs() {
		return ref.String()
	}
	return c.url(ref.Path, ref.Query())
}
