package transfer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
)

// writebackBytes is how much is written before the kernel is asked to begin writing it to disk.
const writebackBytes = 4 << 20

// fetcher fetches spans over one connection at a time. Its buffers take 2 MiB, and 4 MiB more if there are peers.
type fetcher struct {
	pull      *pull
	scratch   []byte
	raw       []byte
	decoded   []byte   // read from a peer; nil: not yet
	unflushed blob.Run // range of the file that was written since the kernel was asked to write
}

func newFetcher(p *pull) *fetcher {
	return &fetcher{pull: p, scratch: make([]byte, blob.MaxFrameSize), raw: make([]byte, 0, blob.MaxFrameSize)}
}

// fetch transfers a span. A cut connection or a damaged frame costs the rest of the span: the next attempt
// begins behind the last written frame.
func (f *fetcher) fetch(ctx context.Context, s fetchSpan) error {
	urls := s.target.layers[s.layer].URLs
	attempt := 0
	err := f.pull.client.retryWithProgress(ctx, "GET "+s.target.name, func() (bool, error) {
		before := s.firstFrame
		address := f.pull.client.sources.choose(f.pull.client, urls, attempt)
		attempt++
		err := f.fetchOnce(ctx, address, &s)
		return s.firstFrame > before, f.pull.client.sources.noteFailure(f.pull.client, urls, address, err)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", s.target.name, err)
	}
	f.startWriteback(s.target)
	return nil
}

func (f *fetcher) fetchOnce(ctx context.Context, address string, s *fetchSpan) error {
	_, first := s.target.frameAt(s.firstFrame)
	_, last := s.target.frameAt(s.endFrame - 1)
	at, begun := first.Offset, time.Now()
	size := last.Offset + int64(last.StoredSize) - at
	err := f.pull.client.getRange(ctx, address, at, size, func(body io.Reader) error {
		for s.firstFrame < s.endFrame {
			_, frame := s.target.frameAt(s.firstFrame)
			for ; at < frame.Offset; at += min(frame.Offset-at, int64(len(f.scratch))) {
				if _, err := io.ReadFull(body, f.scratch[:min(frame.Offset-at, int64(len(f.scratch)))]); err != nil {
					return fmt.Errorf("%w: %w", errTransient, err)
				}
			}
			if err := f.fetchFrame(body, s, frame); err != nil {
				return err
			}
			at += int64(frame.StoredSize)
		}
		return nil
	})
	if err == nil {
		f.pull.registryPace.note(size, time.Since(begun))
	}
	return err
}

// fetchFrame reads, verifies and writes the next frame of a span.
func (f *fetcher) fetchFrame(body io.Reader, s *fetchSpan, frame blob.Frame) error {
	stored := f.scratch[:frame.StoredSize]
	if _, err := io.ReadFull(body, stored); err != nil {
		return fmt.Errorf("%w: %w", errTransient, err)
	}
	raw, err := blob.DecodeFrame(frame, stored, f.raw)
	if err != nil {
		return fmt.Errorf("%w: %w", errTransient, err)
	}
	if err := f.writeFrame(s.target, s.firstFrame, raw); err != nil {
		return err
	}
	s.firstFrame++
	f.pull.transferredBytes.Add(int64(frame.StoredSize))
	f.pull.progress.addTransferred(int64(frame.StoredSize))
	return nil
}

// writeFrame writes the ranges of a verified frame that the plan uses to their positions.
func (f *fetcher) writeFrame(t *pullTarget, frame int, raw []byte) error {
	var batch blob.FramePlacement // contiguous placements, in the frame and on the disk
	for piece := range t.plan.Placements(frame) {
		if batch.DiskOff+batch.Len == piece.DiskOff && batch.FrameOff+int(batch.Len) == piece.FrameOff {
			batch.Len += piece.Len
			continue
		}
		if err := f.writePlacement(t, batch, raw); err != nil {
			return err
		}
		batch = piece
	}
	if err := f.writePlacement(t, batch, raw); err != nil {
		return err
	}
	return t.recordFrame(frame, len(raw))
}

func (f *fetcher) writePlacement(t *pullTarget, piece blob.FramePlacement, raw []byte) error {
	for piece.Len > 0 {
		at, n := t.filePosition(piece.DiskOff, piece.Len)
		if n == 0 {
			return fmt.Errorf("byte %d of the disk is not in the overlay", piece.DiskOff)
		}
		if _, err := t.file.WriteAt(raw[piece.FrameOff:piece.FrameOff+int(n)], at); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		f.recordWrite(t, at, n)
		piece = blob.FramePlacement{DiskOff: piece.DiskOff + n, Len: piece.Len - n, FrameOff: piece.FrameOff + int(n)}
	}
	return nil
}

// recordWrite records a range that the kernel has to write to disk.
func (f *fetcher) recordWrite(t *pullTarget, at, n int64) {
	if f.unflushed.Len > 0 && at < f.unflushed.Off {
		f.startWriteback(t)
	}
	if f.unflushed.Len == 0 {
		f.unflushed.Off = at
	}
	if f.unflushed.Len = at + n - f.unflushed.Off; f.unflushed.Len >= writebackBytes {
		f.startWriteback(t)
	}
}

func (f *fetcher) startWriteback(t *pullTarget) {
	if f.unflushed.Len > 0 {
		blob.StartWriteback(t.file, f.unflushed.Off, f.unflushed.Len)
	}
	f.unflushed = blob.Run{}
}

// getRange requests one bounded range and passes its body to use, which must read all of it.
func (c *Client) getRange(ctx context.Context, address string, off, length int64, use func(io.Reader) error) error {
	ctx, w := c.watchIdle(ctx)
	defer w.close()
	ref, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("parse URL of a layer: %w", err)
	}
	req, err := c.newRequest(ctx, http.MethodGet, c.layerURL(ref), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+length-1))
	resp, err := c.send(req)
	if err != nil {
		return markTransient(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusPartialContent || resp.ContentLength >= 0 && resp.ContentLength != length {
		return responseError(resp)
	}
	if err := use(w.wrapReader(resp.Body)); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return markTransient(ctx, err)
		}
		return err
	}
	// Read to its end, so that the connection is used again.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1))
	return nil
}

// layerURL returns the whole address of a layer: relative ones are below the registry's own address.
func (c *Client) layerURL(ref *url.URL) string {
	if ref.IsAbs() {
		return ref.String()
	}
	return c.buildURL(ref.Path, ref.Query())
}
