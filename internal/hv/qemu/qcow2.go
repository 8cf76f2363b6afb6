package qemu

import (
	"fmt"
	"io"
	"os"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/qcow2"
)

// openBase opens an immutable base for QEMU and returns the size of its disk. Bases are untrusted:
// one that names further files is refused, because QEMU would open those for the guest.
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
		return 0, hv.RefusedError("it is not a regular file")
	case format == "raw":
		return (info.Size() + 511) &^ 511, nil
	case format == "qcow2":
		return qcow2Size(f)
	}
	return 0, hv.RefusedError("format %q: raw or qcow2", format)
}

// qcow2Size reads the header of a qcow2 image without trusting it.
func qcow2Size(r io.ReaderAt) (int64, error) {
	size, err := qcow2.DiskSize(r)
	if err != nil {
		return 0, hv.RefusedError("%v", err)
	}
	return (size + 511) &^ 511, nil
}
