package container

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"slices"
	"sort"
)

// Bounds on the content in memory.
const (
	maxKeptBytes  = 96 << 20  // of all files, while the image is open
	wholeBytes    = 16 << 10  // smaller files are kept as a whole
	maxWholeBytes = 64 << 20  // larger ones are never
	maxProbeBytes = 48 << 20  // of a file that is in memory while the parts to keep are found, one at a time
	scratchBytes  = 4 << 20   // of such a file in each goroutine
	headBytes     = 64 << 10  // of a larger file that are kept: its headers
	tailBytes     = 512 << 10 // and its end, where programs list their sections
	gapBytes      = 1 << 10   // between parts that are kept as one
	maxParts      = 1 << 12   // of a file, before those that touch are joined
	chunkBytes    = 256 << 10 // of memory for small files
)

// content is the content of a regular file.
type content struct {
	layer, ordinal int32
	size           int64
	parts          []part // that are in memory, in their order; set before the tree is used
	err            error  // why it cannot be read
}

// part is a piece of a file.
type part struct {
	at   int64
	data []byte
}

func (p part) end() int64 { return p.at + int64(len(p.data)) }

// readParts copies what parts have from an offset on without a gap.
func readParts(parts []part, p []byte, off int64) (n int) {
	i := sort.Search(len(parts), func(i int) bool { return parts[i].end() > off })
	for ; i < len(parts) && n < len(p) && parts[i].at <= off; i++ {
		m := copy(p[n:], parts[i].data[off-parts[i].at:])
		n, off = n+m, off+int64(m)
	}
	return n
}

// keeper keeps the content of files during the first reading of a layer.
type keeper struct {
	chunk   []byte // memory for small files
	scratch []byte
}

// keep reads what a scan needs of a file, unless memory is short. It fails when the layer cannot be read.
func (k *keeper) keep(t *Tree, s *layerStream, e *entry, isPartial bool) error {
	c := e.file
	switch {
	case isPartial && c.size > wholeBytes:
		return k.probe(t, s, e)
	case c.size > maxWholeBytes || !t.take(c.size):
		return nil
	}
	b := k.allocate(c.size)
	if _, err := io.ReadFull(s, b); err != nil {
		return err
	}
	c.parts = []part{{0, b}}
	return nil
}

// take takes bytes of the budget.
func (t *Tree) take(n int64) bool {
	if t.budget.Add(-n) < 0 {
		t.budget.Add(n)
		return false
	}
	return true
}

// allocate returns memory, for small files out of a larger piece.
func (k *keeper) allocate(n int64) []byte {
	if n > chunkBytes/4 {
		return make([]byte, n)
	}
	if int64(len(k.chunk)) < n {
		k.chunk = make([]byte, chunkBytes)
	}
	b := k.chunk[:n:n]
	k.chunk = k.chunk[n:]
	return b
}

// probe keeps those parts of a file that its extractor reads.
func (k *keeper) probe(t *Tree, s *layerStream, e *entry) error {
	size, most := e.file.size, cmp.Or(t.options.probeBytes, maxProbeBytes)
	switch {
	case t.budget.Load() <= 0:
		return nil
	case size > most:
		return k.keepEnds(t, s, e)
	}
	var b []byte
	if size <= scratchBytes {
		if k.scratch == nil {
			k.scratch = make([]byte, scratchBytes)
		}
		b = k.scratch[:size]
	} else {
		t.probing.Lock()
		defer t.probing.Unlock()
		if t.large == nil {
			t.large = make([]byte, most)
		}
		b = t.large[:size]
	}
	if _, err := io.ReadFull(s, b); err != nil {
		return err
	}
	f := &probedFile{info: e.info(), data: b}
	t.options.Probe(t.ctx, e.path, f)
	ranges := f.joined(gapBytes)
	sum := int64(0)
	for _, r := range ranges {
		sum += r.end - r.at
	}
	if !t.take(sum) {
		return nil
	}
	for _, r := range ranges {
		p := part{r.at, k.allocate(r.end - r.at)}
		copy(p.data, b[r.at:r.end])
		e.file.parts = append(e.file.parts, p)
	}
	return nil
}

// keepEnds keeps the beginning and the end of a file.
func (k *keeper) keepEnds(t *Tree, s *layerStream, e *entry) error {
	size := e.file.size
	if size < headBytes+tailBytes || !t.take(headBytes+tailBytes) {
		return nil
	}
	head, tail := make([]byte, headBytes), make([]byte, tailBytes)
	_, err := io.ReadFull(s, head)
	if err == nil {
		_, err = io.CopyN(io.Discard, s, size-headBytes-tailBytes)
	}
	if err == nil {
		_, err = io.ReadFull(s, tail)
	}
	if err != nil {
		return err
	}
	e.file.parts = []part{{0, head}, {size - tailBytes, tail}}
	return nil
}

// byteRange is a range of a file.
type byteRange struct{ at, end int64 }

// probedFile is a file in memory that records what is read of it.
type probedFile struct {
	info fs.FileInfo
	data []byte
	pos  int64
	read []byteRange
}

var (
	_ fs.File     = (*probedFile)(nil)
	_ io.ReaderAt = (*probedFile)(nil)
	_ io.Seeker   = (*probedFile)(nil)
)

func (f *probedFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *probedFile) Close() error               { return nil }

func (f *probedFile) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.pos)
	f.pos += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

func (f *probedFile) Seek(off int64, whence int) (int64, error) {
	return seek(&f.pos, int64(len(f.data)), off, whence)
}

func (f *probedFile) ReadAt(p []byte, off int64) (int, error) {
	switch {
	case off < 0:
		return 0, fs.ErrInvalid
	case off >= int64(len(f.data)):
		return 0, io.EOF
	}
	n := copy(p, f.data[off:])
	f.record(byteRange{off, off + int64(n)})
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// record adds a range, to that before if it continues it.
func (f *probedFile) record(r byteRange) {
	if n := len(f.read); n > 0 && r.at >= f.read[n-1].at && r.at <= f.read[n-1].end {
		f.read[n-1].end = max(f.read[n-1].end, r.end)
		return
	}
	if f.read = append(f.read, r); len(f.read) >= maxParts {
		f.read = f.joined(0)
		if len(f.read) >= maxParts/2 {
			f.read = f.joined(wholeBytes)
		}
		if len(f.read) >= maxParts/2 {
			f.read = []byteRange{{0, int64(len(f.data))}}
		}
	}
}

// joined returns the ranges in their order, joined where at most gap bytes are between them.
func (f *probedFile) joined(gap int64) (out []byteRange) {
	slices.SortFunc(f.read, func(a, b byteRange) int { return cmp.Compare(a.at, b.at) })
	for _, r := range f.read {
		if n := len(out); n > 0 && r.at <= out[n-1].end+gap {
			out[n-1].end = max(out[n-1].end, r.end)
			continue
		}
		out = append(out, r)
	}
	return out
}

// seek moves a position.
func seek(pos *int64, size, off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += *pos
	case io.SeekEnd:
		off += size
	}
	if off < 0 || whence > io.SeekEnd {
		return 0, errors.New("invalid offset")
	}
	*pos = off
	return off, nil
}
