package chunked

import (
	"errors"
	"io"

	"github.com/buildyard/buildyard/internal/qcow2"
)

// SectorBytes is the unit of sizes and offsets in image formats.
const SectorBytes = 512

// MaxDiskBytes limits the size of a disk.
const MaxDiskBytes = qcow2.MaxDiskBytes

// Source has the content of a disk, chunk by chunk. It is safe for concurrent use.
type Source interface {
	// Size returns the size of the disk in bytes.
	Size() int64
	// Range returns the range of one kind that begins at off, within the disk. The next one may be of the
	// same kind.
	Range(off int64) (qcow2.Range, error)
	// ReadRange fills p from off. All of it is in one range of Data.
	ReadRange(p []byte, off int64) error
}

// Disk is the disk of a Source.
type Disk struct{ Source }

var _ qcow2.Layer = Disk{}

// ReadAt reads the disk; ranges without data read as zeros.
func (d Disk) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	n := 0
	for n < len(p) && off < d.Size() {
		r, err := d.Range(off)
		if err != nil {
			return n, err
		}
		part := p[n:min(int64(len(p)), int64(n)+r.Len)]
		if r.Kind == qcow2.Data {
			err = d.ReadRange(part, off)
		} else {
			clear(part)
		}
		if err != nil {
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

// NextRange returns a range that begins at off; false at the end of the disk.
func (d Disk) NextRange(off int64) (qcow2.Range, bool, error) {
	if off < 0 || off >= d.Size() {
		return qcow2.Range{}, false, nil
	}
	r, err := d.Range(off)
	return r, err == nil, err
}

// ReadFull reads all of p, whose end past the end of r is damage. what names it in the error.
func ReadFull(r io.ReaderAt, p []byte, off int64, what string) error {
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return Damaged("the file ends within %s at %d", what, off)
	}
	return err
}
