package transfer

import (
	"bytes"
	"context"
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

// Parts are cut by a fixed rule, so that a push that goes on makes the same parts and finds those that the
// registry has.
const (
	partTarget = 8 << 20
	partFrames = 4096
)

// parts cuts the frames of one file into parts and sends them. Memory is bounded by the group's limit: the
// encoding waits until a part may be sent.
type parts struct {
	p       *push
	group   *errgroup.Group
	ctx     context.Context
	session string
	have    map[int64]api.PushPart

	frames []blob.PartFrame
	data   []byte
	off    int64 // of the part in the layer file
	end    int64 // place in the file that the part reaches
	told   int64 // place in the file up to which parts were made
}

func newParts(p *push, group *errgroup.Group, ctx context.Context, session string, state api.PushFileState) *parts { //nolint:revive // the group's context
	b := &parts{p: p, group: group, ctx: ctx, session: session, have: map[int64]api.PushPart{}}
	for _, part := range state.Have {
		b.have[part.Offset] = part
	}
	return b
}

func (b *parts) encode(s *source) (*blob.Index, error) {
	name := s.spec.Name
	x, err := s.encode(b.ctx, b.p.o.Workers, func(f blob.Frame, end int64, stored []byte) error {
		return b.add(name, f, end, stored)
	})
	if err != nil {
		return nil, fmt.Errorf("push %s: %w", name, err)
	}
	b.end = s.size
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

// flush sends the part that was collected, unless the registry has it.
func (b *parts) flush(name string) {
	span := b.end - b.told
	b.told = b.end
	frames, data, off := b.frames, b.data, b.off
	b.frames, b.data, b.off = nil, nil, b.off+int64(len(b.data))
	have := b.have[off]
	if len(frames) == 0 || have.Length == int64(len(data)) && have.Sum == blob.PartSum(frames) {
		b.p.meter.skip(span)
		return
	}
	b.group.Go(func() error {
		query := url.Values{"off": {strconv.FormatInt(off, 10)}}
		if err := b.p.c.put(b.ctx, b.session, name, query, blob.PartHeader(frames), data); err != nil {
			return fmt.Errorf("push %s: part at %d: %w", name, off, err)
		}
		b.p.meter.add(span)
		return nil
	})
}

// put sends bulk bytes for a file of a session.
func (c *Client) put(ctx context.Context, session, name string, query url.Values, chunks ...[]byte) error {
	address := c.url("/registry/v2/push/"+session+"/"+name, query)
	return c.retry(ctx, "PUT "+name, func() error { return c.putOnce(ctx, address, chunks) })
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
	resp, err := c.http.Do(req)
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
