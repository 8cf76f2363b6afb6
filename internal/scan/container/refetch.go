package container

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Bounds on content that is read again.
const (
	maxFetchedBytes = 32 << 20 // in memory
	fetchWhole      = 8 << 20  // smaller files are read as a whole
	fetchPart       = 1 << 20  // of larger ones, before and after the place that is wanted
	maxFetch        = 16 << 20 // in one piece
	maxStreams      = 4        // layers that stay open
	freeRefetches   = 4 << 30  // decompressed bytes in all: these, and
	maxRefetches    = 8        // this many times all layers
)

// errRefetch ends reads that jump in an archive without end.
var errRefetch = errors.New("it was not kept in memory, and reading it again takes too long")

// refetcher reads again what was not kept. A layer is only read forward: the streams stay where the last file was,
// since a scan reads files about in the order of the archive.
type refetcher struct {
	mu      sync.Mutex
	streams []*cursor // the last used one last
	fetched map[*content][]part
	held    int64 // bytes of fetched
	spent   int64 // bytes that were decompressed and skipped by streams that are closed
}

// cursor is a place in a layer.
type cursor struct {
	*layerStream
	layer   int32
	ordinal int32 // of the entry that it is in; -1: before the first
	size    int64 // bytes of that entry
	at      int64 // of them, those that were read
	skipped int64 // bytes in files, which may be holes
}

func (c *cursor) spent() int64 { return c.data.read + c.skipped }

// readAt reads content that is not in memory.
func (t *Tree) readAt(c *content, p []byte, off int64) (int, error) {
	r := &t.refetch
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.fetched[c] {
		if known.at <= off && off < known.end() {
			return copy(p, known.data[off-known.at:]), nil
		}
	}
	got, err := t.fetch(c, off, min(int64(len(p)), maxFetch))
	if err != nil {
		return 0, fmt.Errorf("read the layer again: %w", err)
	}
	if r.held += int64(len(got.data)); r.held > maxFetchedBytes || r.fetched == nil {
		r.fetched, r.held = map[*content][]part{}, int64(len(got.data))
	}
	r.fetched[c] = append(r.fetched[c], got)
	return copy(p, got.data[off-got.at:]), nil
}

// fetch reads n bytes of a file from an offset on, and what is around them.
func (t *Tree) fetch(c *content, off, n int64) (part, error) {
	first, end := off, min(c.size, off+max(n, fetchPart))
	if c.size <= fetchWhole {
		first, end = 0, c.size
	}
	cur, err := t.cursorAt(c, first)
	if err != nil {
		return part{}, err
	}
	if c.size > fetchWhole {
		first = max(cur.at, off-fetchPart) // a program is often read from its end
	}
	skipped, err := io.CopyN(io.Discard, cur, first-cur.at)
	cur.at, cur.skipped = cur.at+skipped, cur.skipped+skipped
	if err != nil {
		return part{}, t.failed(cur, err)
	}
	b := make([]byte, end-first)
	read, err := io.ReadFull(cur, b)
	if cur.at += int64(read); err != nil {
		return part{}, t.failed(cur, err)
	}
	return part{first, b}, nil
}

// failed closes a stream that cannot be continued.
func (t *Tree) failed(cur *cursor, err error) error {
	t.refetch.close(cur)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (r *refetcher) close(cur *cursor) {
	r.spent += cur.spent()
	cur.close()
	r.streams = slices.DeleteFunc(r.streams, func(c *cursor) bool { return c == cur })
}

// cursorAt returns a stream that is in a file, and not behind an offset of it.
func (t *Tree) cursorAt(c *content, off int64) (*cursor, error) {
	r := &t.refetch
	i := slices.IndexFunc(r.streams, func(cur *cursor) bool { return cur.layer == c.layer })
	if i >= 0 {
		cur := r.streams[i]
		if cur.ordinal > c.ordinal || cur.ordinal == c.ordinal && cur.at > off {
			r.close(cur)
			i = -1
		} else {
			r.streams = append(slices.Delete(r.streams, i, i+1), cur)
		}
	}
	if i < 0 {
		if len(r.streams) == maxStreams {
			r.close(r.streams[0])
		}
		s, err := openLayer(t.ctx, t.image.store, t.image.layers[c.layer], nil)
		if err != nil {
			return nil, err
		}
		r.streams = append(r.streams, &cursor{layerStream: s, layer: c.layer, ordinal: -1})
	}
	cur := r.streams[len(r.streams)-1]
	for cur.ordinal < c.ordinal {
		if t.refetchSpent() > freeRefetches+maxRefetches*t.plain.Load() {
			return nil, errRefetch
		}
		h, err := cur.Next()
		if err != nil {
			return nil, t.failed(cur, err)
		}
		cur.ordinal, cur.size, cur.at = cur.ordinal+1, h.Size, 0
	}
	if cur.size != c.size {
		return nil, t.failed(cur, errors.New("the archive was changed"))
	}
	return cur, nil
}

// refetchSpent returns how many bytes were decompressed and skipped.
func (t *Tree) refetchSpent() int64 {
	n := t.refetch.spent
	for _, cur := range t.refetch.streams {
		n += cur.spent()
	}
	return n
}

// Close ends what Tree has open; its image stays open.
func (t *Tree) Close() {
	t.refetch.mu.Lock()
	defer t.refetch.mu.Unlock()
	for len(t.refetch.streams) > 0 {
		t.refetch.close(t.refetch.streams[0])
	}
}
