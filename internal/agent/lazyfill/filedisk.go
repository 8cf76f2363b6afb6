package lazyfill

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/nbd"
)

// fileDisk is a disk whose file is complete.
type fileDisk struct {
	file *os.File
	size int64
}

var _ nbd.Disk = fileDisk{}

func openFileDisk(path string) (fileDisk, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileDisk{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return fileDisk{}, errors.Join(err, f.Close())
	}
	return fileDisk{f, info.Size()}, nil
}

// Size is nbd.Disk.Size.
func (d fileDisk) Size() int64 { return d.size }

// ReadAt is nbd.Disk.ReadAt.
func (d fileDisk) ReadAt(_ context.Context, p []byte, off int64) (zero bool, err error) {
	_, err = d.file.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return false, err
}

// Extents is nbd.Disk.Extents. Where the system does not tell holes from data, all is data.
func (d fileDisk) Extents(off, end int64) iter.Seq[nbd.Extent] {
	return func(yield func(nbd.Extent) bool) {
		for off < end {
			data, err := unix.Seek(int(d.file.Fd()), off, unix.SEEK_DATA)
			switch {
			case errors.Is(err, unix.ENXIO): // no data follows
				data = end
			case err != nil:
				yield(nbd.Extent{End: end, Data: true})
				return
			}
			if data = min(data, end); data > off && !yield(nbd.Extent{End: data}) {
				return
			}
			if off = data; off == end {
				return
			}
			hole, err := unix.Seek(int(d.file.Fd()), off, unix.SEEK_HOLE)
			if err != nil || hole <= off {
				hole = end
			}
			if off = min(hole, end); !yield(nbd.Extent{End: off, Data: true}) {
				return
			}
		}
	}
}
