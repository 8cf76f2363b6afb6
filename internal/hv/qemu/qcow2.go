package qemu

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"github.com/buildyard/buildyard/internal/hv"
)

// qcow2 header, big endian, as in QEMU's docs/interop/qcow2.txt.
const (
	qcow2Magic       = 0x514649fb // "QFI\xfb"
	qcow2HeaderBytes = 104
	qcow2DataFile    = 1 << 2 // incompatible feature: the data lies in another file
)

// openBase opens an immutable base for QEMU and answers the size of the disk
// in it. Bases come from outside: one that names further files is refused,
// because QEMU would open those for the guest.
func openBase(d hv.Disk) (f *os.File, size int64, err error) {
	f, err = os.Open(d.Path)
	if err != nil {
		return nil, 0, fmt.Errorf("base image: %w", err)
	}
	size, err = baseSize(f, d.Format)
	if err != nil {
		_ = f.Close()
		return nil, 0, fmt.Errorf("base image %s: %w", d.Path, err)
	}
	return f, size, nil
}

func baseSize(f *os.File, format string) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	switch {
	case !info.Mode().IsRegular():
		return 0, hv.Refuse("it is no regular file")
	case format == "raw":
		return (info.Size() + 511) &^ 511, nil
	case format == "qcow2":
		return qcow2Size(f)
	}
	return 0, hv.Refuse("format %q: raw or qcow2", format)
}

// qcow2Size reads the header of a qcow2 image without trusting it.
func qcow2Size(r io.ReaderAt) (int64, error) {
	var h [qcow2HeaderBytes]byte
	if _, err := r.ReadAt(h[:], 0); err != nil {
		return 0, hv.Refuse("it is no qcow2 image: %v", err)
	}
	be := binary.BigEndian
	magic, version := be.Uint32(h[0:]), be.Uint32(h[4:])
	backing, size, crypt := be.Uint64(h[8:]), be.Uint64(h[24:]), be.Uint32(h[32:])
	switch {
	case magic != qcow2Magic || version < 2 || version > 3:
		return 0, hv.Refuse("it is no qcow2 image of version 2 or 3")
	case backing != 0:
		return 0, hv.Refuse("it is an overlay on another image; convert it to one that stands alone")
	case version == 3 && be.Uint64(h[72:])&qcow2DataFile != 0:
		return 0, hv.Refuse("its data lies in another file; convert it to one that stands alone")
	case crypt != 0:
		return 0, hv.Refuse("it is encrypted")
	case size == 0 || size > 1<<50:
		return 0, hv.Refuse("its disk has %d bytes", size)
	}
	return int64(size+511) &^ 511, nil
}
