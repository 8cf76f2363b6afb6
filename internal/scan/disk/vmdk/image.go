package vmdk

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
)

// OpenFunc opens a file that a descriptor names. Names are untrusted. The file stays the caller's, and must
// stay open while the image is used.
type OpenFunc func(name string) (qcow2.Layer, error)

// extent is a part of the disk.
type extent struct {
	start int64 // on the disk, in bytes
	bytes int64
	qcow2.Layer
	offset int64 // in the layer, in bytes
}

// image is a disk of several extents, without gaps.
type image struct {
	extents []extent
	size    int64
}

var _ qcow2.Layer = (*image)(nil)

// Open opens the image in f, which is sparse or a descriptor. open opens the files of extents.
func Open(f qcow2.Layer, open OpenFunc) (qcow2.Layer, error) {
	beginning := make([]byte, min(int64(len(magicDescriptor)), f.Size()))
	if err := chunked.ReadFull(f, beginning, 0, "the header"); err != nil {
		return nil, err
	}
	switch {
	case strings.HasPrefix(string(beginning), magicSparse):
		return openMonolithic(f)
	case strings.HasPrefix(string(beginning), magicESX):
		return nil, errESX
	}
	return openDescribed(f, open)
}

// openMonolithic opens an image of one file, which contains its descriptor.
func openMonolithic(f qcow2.Layer) (qcow2.Layer, error) {
	h, err := readHeader(f, 0)
	if err != nil {
		return nil, err
	}
	const maxSector = chunked.MaxDiskBytes / sectorBytes
	if at, n := h.descriptorAt, h.descriptorLength; at > maxSector || n > maxSector {
		return nil, chunked.Damaged("the descriptor has %d sectors at %d", n, at)
	} else if at > 0 {
		d, err := readDescriptor(f, int64(at)*sectorBytes, int64(n)*sectorBytes)
		if err == nil {
			err = d.checkParent()
		}
		if err != nil {
			return nil, err
		}
		if len(d.extents) > 1 {
			return nil, fmt.Errorf("its descriptor, which is within the first extent, has several: %s", adviceConvert)
		}
	}
	s, err := openSparse(f, h, 0, newCaches())
	if err != nil {
		return nil, err
	}
	return chunked.Disk{Source: s}, nil
}

// openDescribed opens an image of a descriptor.
func openDescribed(f qcow2.Layer, open OpenFunc) (qcow2.Layer, error) {
	d, err := readDescriptor(f, 0, f.Size())
	if err == nil {
		err = d.checkParent()
	}
	if err != nil {
		return nil, err
	}
	if len(d.extents) == 0 {
		return nil, chunked.Damaged("its descriptor has no extents")
	}
	i, c := &image{}, newCaches()
	for k, line := range d.extents {
		e, err := openExtent(line, k, open, c)
		if err == nil {
			err = i.add(e)
		}
		if err != nil {
			return nil, fmt.Errorf("extent %d %q: %w", k+1, line.name, err)
		}
	}
	return i, nil
}

// add adds an extent at the end.
func (i *image) add(e extent) error {
	e.start = i.size
	if i.size += e.bytes; i.size > chunked.MaxDiskBytes {
		return chunked.Damaged("the disk has more than %d bytes", int64(chunked.MaxDiskBytes))
	}
	i.extents = append(i.extents, e)
	return nil
}

// openers open the types of extents.
var openers = map[string]func(extentLine, int, OpenFunc, *caches) (extent, error){
	"FLAT": openFlat, "VMFS": openFlat, "SPARSE": openSparseFile, "ZERO": openZero,
}

// openExtent opens an extent of a descriptor.
func openExtent(line extentLine, index int, open OpenFunc, c *caches) (extent, error) {
	opener := openers[line.kind]
	if opener == nil {
		return extent{}, fmt.Errorf("extents of type %q cannot be read: %s", line.kind, adviceConvert)
	}
	if line.name == "" && line.kind != "ZERO" {
		return extent{}, chunked.Damaged("it has no name")
	}
	return opener(line, index, open, c)
}

func openFlat(line extentLine, _ int, open OpenFunc, _ *caches) (extent, error) {
	f, err := open(line.name)
	if err != nil {
		return extent{}, err
	}
	if f.Size() < line.offset || f.Size()-line.offset < line.bytes {
		return extent{}, chunked.Damaged("the file has %d bytes, and the extent %d at %d", f.Size(), line.bytes,
			line.offset)
	}
	return extent{bytes: line.bytes, Layer: f, offset: line.offset}, nil
}

func openSparseFile(line extentLine, index int, open OpenFunc, c *caches) (extent, error) {
	f, err := open(line.name)
	if err != nil {
		return extent{}, err
	}
	h, err := readHeader(f, 0)
	if err != nil {
		return extent{}, err
	}
	s, err := openSparse(f, h, index, c)
	if err != nil {
		return extent{}, err
	}
	if s.size < line.bytes {
		return extent{}, chunked.Damaged("the file has %d bytes of the disk, and the extent %d", s.size, line.bytes)
	}
	return extent{bytes: line.bytes, Layer: chunked.Disk{Source: s}}, nil
}

// zeros is an extent without a file.
type zeros int64

func (z zeros) Size() int64 { return int64(z) }

func (z zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

func (z zeros) NextRange(off int64) (qcow2.Range, bool, error) {
	return qcow2.Range{Off: off, Len: int64(z) - off, Kind: qcow2.Zero}, off < int64(z), nil
}

func openZero(line extentLine, _ int, _ OpenFunc, _ *caches) (extent, error) {
	return extent{bytes: line.bytes, Layer: zeros(line.bytes)}, nil
}

// Size returns the size of the disk in bytes.
func (i *image) Size() int64 { return i.size }

// at returns the extent at off of the disk, and the offset in its layer.
func (i *image) at(off int64) (extent, int64) {
	k := sort.Search(len(i.extents), func(k int) bool { return i.extents[k].start > off }) - 1
	e := i.extents[k]
	return e, off - e.start + e.offset
}

// ReadAt reads the disk.
func (i *image) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	n := 0
	for n < len(p) && off < i.size {
		e, at := i.at(off)
		part := p[n:min(int64(len(p)), int64(n)+e.start+e.bytes-off)]
		if err := chunked.ReadFull(e, part, at, "an extent"); err != nil {
			return n, err
		}
		n += len(part)
		off += int64(len(part))
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// NextRange returns a range of one kind that begins at off, within its extent; false at the end of the disk.
func (i *image) NextRange(off int64) (qcow2.Range, bool, error) {
	if off < 0 || off >= i.size {
		return qcow2.Range{}, false, nil
	}
	e, at := i.at(off)
	r, ok, err := e.NextRange(at)
	if err == nil && !ok {
		err = chunked.Damaged("an extent ends before %d of the disk", off)
	}
	r.Off, r.Len = off, min(r.Len, e.start+e.bytes-off)
	return r, err == nil, err
}
