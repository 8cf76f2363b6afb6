package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/qcow2"
)

// A simulated guest stores its files as JSON at the beginning of its first disk, after a marker and
// the length. So they are part of the disk: in a delta, in a registry, in a flat image. Bases that
// no simulated guest wrote are empty disks.
const (
	diskMagic        = "SIMDISK1"
	diskHeaderSize   = len(diskMagic) + 8
	minDiskBytes     = 16 << 20 // minimum size of a disk
	maxDiskJSONBytes = 64 << 20 // of the JSON
)

// writeDisk creates an overlay with the files of a guest.
func writeDisk(ctx context.Context, path string, f guestFiles) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	disk := binary.BigEndian.AppendUint64([]byte(diskMagic), uint64(len(text)))
	disk = append(disk, text...)
	used := int64(len(disk)+qcow2.SubclusterBytes-1) / qcow2.SubclusterBytes * qcow2.SubclusterBytes
	b := qcow2.NewBuilder(max(minDiskBytes, used))
	if err := b.Add(qcow2.Range{Len: used, Kind: qcow2.Data}); err != nil {
		return err
	}
	l, err := b.Layout()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = l.CopyData(ctx, out, bytes.NewReader(disk))
	if err == nil {
		err = l.Finish(out)
	}
	return errors.Join(err, out.Close())
}

// readDisk reads the files of a guest from its disk.
func readDisk(d hv.Disk) (guestFiles, error) {
	var layers []qcow2.Layer
	for i, path := range append([]string{d.Path}, d.Deltas...) {
		l, f, err := openLayer(path)
		if f != nil {
			defer f.Close()
		}
		switch {
		case err == nil && l != nil:
			layers = append(layers, l)
		case i > 0:
			return nil, hv.RefusedError("layer %s: %v", path, err)
		}
	}
	if len(layers) == 0 {
		return guestFiles{}, nil
	}
	f, err := DiskFiles(qcow2.Stack(layers...))
	if err != nil {
		return nil, hv.RefusedError("disk %s: %v", d.Path, err)
	}
	return f, nil
}

// openLayer opens a file by its content: as a qcow2 image or as a flat simulated disk. No real
// guest could have written a misleading header.
func openLayer(path string) (qcow2.Layer, *os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, f, err
	}
	image, err := qcow2.Open(f, info.Size())
	if err == nil {
		return image, f, nil
	}
	mark := make([]byte, len(diskMagic))
	if _, none := f.ReadAt(mark, 0); none == nil && string(mark) == diskMagic {
		return qcow2.RawLayer(solidDisk{f, info.Size()}, info.Size()), f, nil
	}
	return nil, f, err
}

// solidDisk is a raw disk without holes.
type solidDisk struct {
	io.ReaderAt
	size int64
}

// NextData returns the rest of the disk.
func (s solidDisk) NextData(off int64) (start, end int64, err error) { return off, s.size, nil }

// DiskFiles returns the files that a simulated guest has on a disk, by their paths.
func DiskFiles(disk io.ReaderAt) (map[string]string, error) {
	head := make([]byte, diskHeaderSize)
	if n, err := disk.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	} else if n < diskHeaderSize || string(head[:len(diskMagic)]) != diskMagic {
		return guestFiles{}, nil
	}
	n := binary.BigEndian.Uint64(head[len(diskMagic):])
	if n > maxDiskJSONBytes {
		return nil, fmt.Errorf("the simulated disk has files of %d bytes, which is too much", n)
	}
	text := make([]byte, n)
	if _, err := disk.ReadAt(text, int64(diskHeaderSize)); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	f := guestFiles{}
	return f, json.Unmarshal(text, &f)
}
