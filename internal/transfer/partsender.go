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
	partTargetBytes = 8 << 20
	maxPartFrames   = 4096
)

// partSender cuts the frames of one file into parts and sends them. Memory is bounded by the group's limit: the
// encoding waits until a part may be sent.
type partSender struct {
	push     *push
	source   *pushSource
	group    *errgroup.Group
	ctx      context.Context
	received map[int64]api.PushPart

	frames      []blob.PartFrame
	buf         []byte
	off         int64 // of the part in the layer file
	end         int64 // end of the part in the file
	reportedEnd int64 // end of the last complete part in the file
}

func newPartSender(
	ctx context.Context, p *push, file *pushSource, group *errgroup.Group, state api.PushFileState,
) *partSender {
	b := &partSender{push: p, source: file, group: group, ctx: ctx, received: map[int64]api.PushPart{}}
	for _, part := range state.Have {
		b.received[part.Offset] = part
	}
	return b
}

func (b *partSender) encodeFile() (*blob.Index, error) {
	name := b.source.file.Name
	o := blob.EncodeOptions{Workers: b.push.opts.Workers, DecodedSums: b.push.peerSums}
	x, err := b.source.encodeLayer(b.ctx, o, func(f blob.Frame, end int64, stored []byte) error {
		return b.addFrame(name, f, end, stored)
	})
	if err != nil {
		return nil, fmt.Errorf("push %s: %w", name, err)
	}
	b.end = b.source.size
	b.sendPart(name)
	return x, nil
}

func (b *partSender) addFrame(name string, f blob.Frame, end int64, stored []byte) error {
	if len(b.frames) == maxPartFrames || len(b.buf)+len(stored) > partTargetBytes {
		b.sendPart(name)
	}
	if b.buf == nil {
		b.buf = make([]byte, 0, partTargetBytes)
	}
	b.frames = append(b.frames, blob.PartFrame{StoredSize: f.StoredSize, Sum: f.Sum})
	b.buf = append(b.buf, stored...)
	b.end = end
	return context.Cause(b.ctx)
}

// sendPart sends the collected part, unless the registry has it.
func (b *partSender) sendPart(name string) {
	span, err := dataBytesBetween(b.source.readRanges, b.reportedEnd, b.end)
	if err != nil {
		span = 0 // used only for the progress
	}
	b.reportedEnd = b.end
	left := unsentRange{name: name, off: b.off, frames: b.frames, data: b.buf}
	b.frames, b.buf, b.off = nil, nil, b.off+int64(len(b.buf))
	b.skipReceived(&left)
	if len(left.frames) == 0 {
		b.push.progress.addSkipped(span)
		return
	}
	b.group.Go(func() error {
		if err := b.sendRange(left); err != nil {
			return fmt.Errorf("push %s: part at %d: %w", name, left.off, err)
		}
		b.push.progress.addTransferred(span)
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

// dropFrames removes the first frames.
func (r *unsentRange) dropFrames(frames int, length int64) {
	r.off, r.frames, r.data = r.off+length, r.frames[frames:], r.data[length:]
}

// skipReceived removes frames that the registry has from an earlier push, which may have sent them in smaller requests.
func (b *partSender) skipReceived(r *unsentRange) {
	for len(r.frames) > 0 {
		have, ok := b.received[r.off]
		if !ok {
			return
		}
		frames, length := r.framesWithin(have.Length)
		if length != have.Length || blob.PartSum(r.frames[:frames]) != have.Sum {
			return
		}
		r.dropFrames(frames, length)
	}
}

// framesWithin returns the largest prefix of frames of at most most bytes, but at least one frame.
func (r *unsentRange) framesWithin(most int64) (frames int, length int64) {
	for frames < len(r.frames) && (frames == 0 || length+int64(r.frames[frames].StoredSize) <= most) {
		length += int64(r.frames[frames].StoredSize)
		frames++
	}
	return frames, length
}

// maxBusyResponses is how many busy responses count as failure, and insist after how many the same range is sent again.
const (
	maxBusyResponses = 50
	busyBeforeResend = 10
)

// sendRange sends the rest of a part. If the connection breaks repeatedly, the requests become smaller, which counts
// as progress, until one of them succeeds. While the registry still receives an earlier request at an offset,
// it accepts no other range there; if that lasts, the same range is sent again.
func (b *partSender) sendRange(r unsentRange) error {
	var failed, again int64
	busy := 0
	return b.push.client.retryWithProgress(b.ctx, "PUT "+r.name, func() (moved bool, err error) {
		for len(r.frames) > 0 {
			frames, length := r.framesWithin(cmp.Or(again, b.push.maxRequestBytes.Load()))
			err := b.push.client.putFrames(b.ctx, b.push.session, &r, frames, length)
			again = 0
			switch {
			case err == nil:
				r.dropFrames(frames, length)
				b.skipReceived(&r)
				moved, failed, busy = true, 0, 0
				continue
			case farm.CodeOf(err) == farm.CodeBusy:
				if busy++; busy%busyBeforeResend == 0 {
					again = failed
				}
				return busy < maxBusyResponses, err
			case errors.Is(err, errTransient):
				failed = length
				return b.push.shrinkRequests(length/2) || moved, err
			}
			return moved, err
		}
		return moved, nil
	})
}

// putFrames sends the first frames of the rest of a part, once.
func (c *Client) putFrames(ctx context.Context, session string, r *unsentRange, frames int, length int64) error {
	query := url.Values{"off": {strconv.FormatInt(r.off, 10)}}
	return c.putOnce(ctx, c.fileURL(session, r.name, query),
		[][]byte{blob.PartHeader(r.frames[:frames]), r.data[:length]})
}

// shrinkRequests lowers the maximum bytes of one request, and reports whether it could: the minimum is one frame.
func (p *push) shrinkRequests(most int64) bool {
	most = max(most, blob.MaxFrameSize)
	for old := p.maxRequestBytes.Load(); most < old; old = p.maxRequestBytes.Load() {
		if p.maxRequestBytes.CompareAndSwap(old, most) {
			return true
		}
	}
	return false
}

// fileURL is the URL to which bytes of a session's file are sent.
func (c *Client) fileURL(session, name string, query url.Values) string {
	return c.buildURL("/registry/v2/push/"+session+"/"+name, query)
}

func (c *Client) putOnce(ctx context.Context, address string, chunks [][]byte) error {
	ctx, w := c.watchIdle(ctx)
	defer w.close()
	var readers []io.Reader
	var length int64
	for _, chunk := range chunks {
		readers = append(readers, bytes.NewReader(chunk))
		length += int64(len(chunk))
	}
	req, err := c.newRequest(ctx, http.MethodPut, address, io.NopCloser(w.wrapReader(io.MultiReader(readers...))))
	if err != nil {
		return err
	}
	req.ContentLength = length
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := c.send(req)
	if err != nil {
		return markTransient(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return nil
	}
	err = responseError(resp)
	if farm.CodeOf(err) == farm.CodeInvalid && strings.HasPrefix(err.Error(), "body:") {
		return fmt.Errorf("%w: %w", errTransient, err) // damaged or cut on the way
	}
	return err
}
