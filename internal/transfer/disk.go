package transfer

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/qcow2"
)

// Disk is a disk of this host: a raw file or a qcow2 image and, lowest first, qcow2 overlays on it. No file
// names another as its backing file, and none may change.
type Disk struct {
	Path     string
	Format   string   // "raw" or "qcow2"; "" means "raw"
	Overlays []string // each rests on all before it
}

// files are the paths of all files, base first.
func (d Disk) files() []string { return append([]string{d.Path}, d.Overlays...) }

// isRaw reports whether a disk is one file, byte for byte.
func (d Disk) isRaw() bool { return len(d.Overlays) == 0 && (d.Format == formatRaw || d.Format == "") }

// OpenDisk reads the content of a Disk as a guest sees it. It may be read from many goroutines.
type OpenDisk struct {
	topLayer      qcow2.Layer
	layers        []qcow2.Layer // base first
	files         []*os.File
	releaseDirect []func() // closes of sources that bypass the page cache
}

var (
	_ io.ReaderAt = (*OpenDisk)(nil)
	_ blob.Source = (*OpenDisk)(nil)
)

// Open opens the files. farm.CodeRefused: one of them does not match the description of the disk.
func (d Disk) Open() (*OpenDisk, error) {
	o := &OpenDisk{}
	for i, path := range d.files() {
		format := d.Format
		if i > 0 {
			format = formatQCOW2
		}
		if err := o.openLayer(path, format); err != nil {
			return nil, errors.Join(err, o.Close())
		}
	}
	o.topLayer = o.layers[0]
	if len(o.layers) > 1 {
		o.topLayer = qcow2.Stack(o.layers...)
	}
	return o, nil
}

// The formats of files.
const (
	formatRaw   = "raw"
	formatQCOW2 = "qcow2"
)

func (d *OpenDisk) openLayer(path, format string) error {
	f, st, err := openRegular(path)
	if err != nil {
		return err
	}
	d.files = append(d.files, f)
	switch format {
	case formatRaw, "":
		src, release := blob.FileSource{File: f, Size: st.Size()}.Uncached()
		d.releaseDirect = append(d.releaseDirect, release)
		d.layers = append(d.layers, qcow2.RawLayer(src, st.Size()))
		return nil
	case formatQCOW2:
		image, err := qcow2.Open(f, st.Size())
		if err != nil {
			return farm.Refused("%s is not a readable disk image: %v", path, err)
		}
		d.layers = append(d.layers, image)
		return nil
	}
	return farm.Refused("%s: disk images in the format %q are not supported", path, format)
}

// openRegular opens a file that is read only.
func openRegular(path string) (*os.File, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = farm.Refused("%s is not a regular file", path)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, st, nil
}

// Size is the number of bytes of the disk.
func (d *OpenDisk) Size() int64 { return d.topLayer.Size() }

// ReadAt reads the disk.
func (d *OpenDisk) ReadAt(p []byte, off int64) (int, error) { return d.topLayer.ReadAt(p, off) }

// NextData returns the next range that may hold anything but zeros; start == end means there is none.
func (d *OpenDisk) NextData(off int64) (start, end int64, err error) {
	return qcow2.NextData(d.topLayer, off)
}

// Close closes the files.
func (d *OpenDisk) Close() error {
	for _, release := range d.releaseDirect {
		release()
	}
	var err error
	for _, f := range d.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// changesAbove returns the changes in the files above the first n.
func (d *OpenDisk) changesAbove(n int) (blob.Changes, error) {
	if n < 1 || n >= len(d.layers) {
		return nil, fmt.Errorf("a disk of %d image files has no changes above file %d", len(d.layers), n)
	}
	return overlayChanges{d, qcow2.Stack(d.layers[n:]...)}, nil
}

// overlayChanges are the ranges of a disk that overlays hold.
type overlayChanges struct {
	*OpenDisk
	overlays qcow2.Layer
}

var _ blob.Changes = overlayChanges{}

// NextData returns the next range that the overlays hold as data.
func (c overlayChanges) NextData(off int64) (start, end int64, err error) {
	return qcow2.NextData(c.overlays, off)
}

// NextChange widens the ranges that overlays hold to whole blocks; off is the beginning of one.
func (c overlayChanges) NextChange(off int64) (blob.Change, bool, error) {
	for {
		r, ok, err := c.overlays.NextRange(off)
		if err != nil || !ok {
			return blob.Change{}, false, err
		}
		if r.Kind != qcow2.Absent {
			return c.toWholeBlocks(r), true, nil
		}
		if off = r.End(); off%blob.BlockSize != 0 {
			// The block is changed in part: the rest of its bytes comes from below.
			return c.toWholeBlocks(qcow2.Range{Off: off / blob.BlockSize * blob.BlockSize, Len: 1, Kind: qcow2.Data}),
				true,
				nil
		}
	}
}

// toWholeBlocks cuts a range that begins with a block to whole blocks, or extends it to one.
func (c overlayChanges) toWholeBlocks(r qcow2.Range) blob.Change {
	end := r.End()
	if end < c.Size() {
		end = end / blob.BlockSize * blob.BlockSize
	}
	if end <= r.Off {
		return blob.Change{Off: r.Off, Len: min(blob.BlockSize, c.Size()-r.Off), Kind: blob.ChangeData}
	}
	kind := blob.ChangeData
	if r.Kind == qcow2.Zero {
		kind = blob.ChangeZero
	}
	return blob.Change{Off: r.Off, Len: end - r.Off, Kind: kind}
}
