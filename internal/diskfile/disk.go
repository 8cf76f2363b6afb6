// Package diskfile reads disks of this host that consist of files: a raw file or a qcow2 image, and qcow2 overlays
// on it.
//
// It does not write disks, starts no program, and knows neither registries nor hypervisors.
//
// Invariant: only the named files are read: an image that refers to another file is refused.
package diskfile

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

// Files are the paths of all files, base first.
func (d Disk) Files() []string { return append([]string{d.Path}, d.Overlays...) }

// IsRaw reports whether a disk is one file, byte for byte.
func (d Disk) IsRaw() bool { return len(d.Overlays) == 0 && (d.Format == FormatRaw || d.Format == "") }

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
	for i, path := range d.Files() {
		format := d.Format
		if i > 0 {
			format = FormatQCOW2
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
	FormatRaw   = "raw"
	FormatQCOW2 = "qcow2"
)

func (d *OpenDisk) openLayer(path, format string) error {
	f, st, err := OpenRegular(path)
	if err != nil {
		return err
	}
	d.files = append(d.files, f)
	switch format {
	case FormatRaw, "":
		src, release := blob.FileSource{File: f, Size: st.Size()}.Uncached()
		d.releaseDirect = append(d.releaseDirect, release)
		d.layers = append(d.layers, qcow2.RawLayer(src, st.Size()))
		return nil
	case FormatQCOW2:
		image, err := qcow2.Open(f, st.Size())
		if err != nil {
			return farm.Refused("%s is not a readable disk image: %v", path, err)
		}
		d.layers = append(d.layers, image)
		return nil
	}
	return farm.Refused("%s: disk images in the format %q are not supported", path, format)
}

// OpenRegular opens a file that is read only.
func OpenRegular(path string) (*os.File, os.FileInfo, error) {
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

// ChangesAbove returns the changes in the files above the first n.
func (d *OpenDisk) ChangesAbove(n int) (blob.Changes, error) {
	if n < 1 || n >= len(d.layers) {
		return nil, fmt.Errorf("a disk of %d image files has no changes above file %d", len(d.layers), n)
	}
	return OverlayChanges{d, qcow2.Stack(d.layers[n:]...)}, nil
}

// OverlayChanges are the ranges of a disk that overlays hold.
type OverlayChanges struct {
	*OpenDisk
	overlays qcow2.Layer
}

var _ blob.Changes = OverlayChanges{}

// NextData returns the next range that the overlays hold as data.
func (c OverlayChanges) NextData(off int64) (start, end int64, err error) {
	return qcow2.NextData(c.overlays, off)
}

// NextChange widens the ranges that overlays hold to whole blocks; off is the beginning of one.
func (c OverlayChanges) NextChange(off int64) (blob.Change, bool, error) {
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
func (c OverlayChanges) toWholeBlocks(r qcow2.Range) blob.Change {
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
