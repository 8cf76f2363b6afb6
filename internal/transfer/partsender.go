package transfer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
)

// Parts are cut by a fixed rule, so that a resumed push makes the same parts and recognizes those that the
// registry has.
const (
	partTarget = 8 << 20
	partFrames = 4096
)

// parts cuts the frames of one file into parts and sends them. Memory is bounded by the group's limit: the
// encoding waits until a part may be sent.
type parts struct {
	p     *push
	file  *source
	group *errgroup.Group
	ctx   context.Context
	have  map[int64]api.PushPart

	frames []blob.PartFrame
	data   []byte
	off    int64 // of the part in the layer file
	end    int64 // end of the part in the file
	told   int64 // end of the last complete part in the file
}

func newParts(p *push, file *source, group *errgroup.Group, ctx context.Context, state api.PushFileState) *parts { //nolint:revive // the group's context
	b := &parts{p: p, file: file, group: group, ctx: ctx, have: map[int64]api.PushPart{}}
	for _, part := range state.Have {
		b.have[part.Offset] = part
	}
	return b
}

func (b *parts) encode() (*blob.Index, error) {
	name := b.file.spec.Name
	x, err := b.file.encode(b.ctx, b.p.o.Workers, func(f blob.Frame, end int64, stored []byte) error {
		return b.add(name, f, end, stored)
	})
	if err != nil {
		return nil, fmt.Errorf("push %s: %w", name, err)
	}
	b.end = b.file.size
	b.flush(name)
	return x, nil
}

func (b *parts) add(name string, f blob.Frame, end int64, stored []byte) error {
	if len(b.frames) == partFrames || len(b.data)+len(stored) > partTarget {
		b.flush(name)
	}
	if b.data == nil {
		b.data = make([]byte, 0, partTarget)
	}
	b.frames = append(b.frames, blob.PartFrame{Stored: f.Stored, Sum: f.Sum})
	b.data = append(b.data, stored...)
	b.end = end
	return context.Cause(b.ctx)
}

// flush sends the collected part, unless the registry has it.
func (b *parts) flush(name string) {
	span, err := dataIn(b.file.extent, b.told, b.end)
	if err != nil {
		span = 0 // used only for the progress
	}
	b.told = b.end
	left := unsentRange{name: name, off: b.off, frames: b.frames, data: b.data}
	b.frames, b.data, b.off = nil, nil, b.off+int64(len(b.data))
	b.skip(&left)
	if len(left.frames) == 0 {
		b.p.meter.skip(span)
		return
	}
	b.group.Go(func() error {
		if err := b.send(left); err != nil {
			return fmt.Errorf("push %s: part at %d: %w", name, left.off, err)
		}
		b.p.meter.add(span)
		return nil
	})
}

// unsentRange is the unsent rest of a part.
type unsentRange struct {
	name   string
	off    int64 // in the layer file
	frames []blob.PartFrame
	data   []byte
}

// take removes the first frames.
func (r *unsentRange) take(frames int, length int64) {
	r.off, r.frames, r.data = r.off+length, r.frames[frames:], r.data[length:]
}

// skip removes frames that the registry has from an earlier push, which may have sent them in smaller requests.
func (b *parts) skip(r *unsentRange) {
	for len(r.frames) > 0 {
		have, ok := b.have[r.off]
		if !ok {
			return
		}
		frames, length := r.upTo(have.Length)
		if length != have.Length || blob.PartSum(r.frames[:frames]) != have.Sum {
			return
		}
		r.take(frames, length)
	}
}

// upTo returns the largest prefix of frames of at most most bytes, but at least one frame.
func (r *unsentRange) upTo(most int64) (frames int, length int64) {
	for frames < len(r.frames) && (frames == 0 || length+int64(r.frames[frames].Stored) <= most) {
		length += int64(r.frames[frames].Stored)
		frames++
	}
	return frames, length
}

// patience is how many busy responses count as failure, and insist after how many the same range is sent again.
const (
	patience = 50
	insist   = 10
)

// send sends the rest of a part. If the connection breaks repeatedly, the requests become smaller, which counts
// as progress, until one of them succeeds. While the registry still receives an earlier request at an offset,
// it accepts no other range there; if that lasts, the same range is sent again.
func (b *parts) send(r unsentRange) error {
	var failed, again int64
	busy := 0
	return b.p.c.retryProgress(b.ctx, "PUT "+r.name, func() (moved bool, err error) {
		for len(r.frames) > 0 {
			frames, length := r.upTo(cmp.Or(again, b.p.piece.Load()))
			err := b.p.c.putPiece(b.ctx, b.p.session, &r, frames, length)
			again = 0
			switch {
			case err == nil:
				r.take(frames, length)
				b.skip(&r)
				moved, failed, busy = true, 0, 0
				continue
			case farm.CodeOf(err) == farm.CodeBusy:
				if busy++; busy%insist == 0 {
					again = failed
				}
				return busy < patience, err
			case errors.Is(err, errTransient):
				failed = length
				return b.p.shrink(length/2) || moved, err
			}
			return moved, err
		}
		return moved, nil
	})
}

// putPiece sends the first frames of the rest of a part, once.
func (c *Client) putPiece(ctx context.Context, session string, r *unsentRange, frames int, length int64) error {
	query := url.Values{"off": {strconv.FormatInt(r.off, 10)}}
	return c.putOnce(ctx, c.fileURL(session, r.name, query),
		[][]byte{blob.PartHeader(r.frames[:frames]), r.data[:length]})
}

// shrink lowers the maximum bytes of one request, and reports whether it could: the minimum is one frame.
func (p *push) shrink(most int64) bool {
	most = max(most, blob.FrameSize)
	for old := p.piece.Load(); most < old; old = p.piece.Load() {
		if p.piece.CompareAndSwap(old, most) {
			return true
		}
	}
	return false
}

// fileURL is the URL to which bytes of a session's file are sent.
func (c *Client) fileURL(session, name string, query url.Values) string {
	return c.url("/registry/v2/push/"+session+"/"+name, query)
}

func (c *Client) putOnce(ctx context.Context, address string, chunks [][]byte) error {
	ctx, w := c.watch(ctx)
	defer w.close()
	var readers []io.Reader
	var length int64
	for _, chunk := range chunks {
		readers = append(readers, bytes.NewReader(chunk))
		length += int64(len(chunk))
	}
	req, err := c.request(ctx, http.MethodPut, address, io.NopCloser(w.reader(io.MultiReader(readers...))))
	if err != nil {
		return err
	}
	req.ContentLength = length
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := c.send(req)
	if err != nil {
		return cut(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return nil
	}
	err = failure(resp)
	if farm.CodeOf(err) == farm.CodeInvalid && strings.HasPrefix(err.Error(), "body:") {
		return fmt.Errorf("%w: %w", errTransient, err) // damaged or cut on the way
	}
	return err
}
