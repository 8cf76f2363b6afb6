package qemu

import (
	"context"
	"strconv"

	"github.com/buildyard/buildyard/internal/hv"
)

// diskBytes returns the size of the first disk that a spec requests, in whole sectors.
func diskBytes(s hv.Spec) int64 { return (s.DiskBytes + 511) &^ 511 }

// acceptSize refuses a first disk that is smaller than its image.
func acceptSize(s hv.Spec) error {
	if s.DiskBytes == 0 {
		return nil
	}
	top := hv.Disk{Path: s.Disks[0].Path, Format: s.Disks[0].Format}
	if n := len(s.Disks[0].Deltas); n > 0 {
		top = hv.Disk{Path: s.Disks[0].Deltas[n-1], Format: "qcow2"}
	}
	f, size, err := openBase(top)
	if err != nil {
		return err
	}
	defer f.Close()
	if diskBytes(s) < size {
		return hv.RefusedError("a disk of %d bytes: its image has %d, and a disk can only grow", s.DiskBytes, size)
	}
	return nil
}

// growOverlay enlarges an overlay that no QEMU has open, if it is smaller.
func growOverlay(ctx context.Context, path string, size int64) error {
	f, present, err := openBase(hv.Disk{Path: path, Format: "qcow2"})
	if err != nil {
		return err
	}
	_ = f.Close()
	if present >= size {
		return nil
	}
	_, err = runTool(ctx, imageInfoTimeout, imageTool, "resize", "-q", "-f", "qcow2", "--", path,
		strconv.FormatInt(size, 10))
	return err
}

// growDisk enlarges the first disk of a guest that was resumed from a state with a smaller one.
func (m *machine) growDisk(ctx context.Context, q *qmpConn) error {
	want := diskBytes(m.spec())
	if want == 0 {
		return nil
	}
	generations := m.generations()
	node := overlayName(0, generations[len(generations)-1])
	var disks []struct {
		Inserted struct {
			Node  string `json:"node-name"`
			Image struct {
				Size int64 `json:"virtual-size"`
			} `json:"image"`
		} `json:"inserted"`
	}
	if err := q.call(ctx, "query-block", nil, &disks); err != nil {
		return err
	}
	for _, d := range disks {
		if d.Inserted.Node == node && d.Inserted.Image.Size < want {
			return q.call(ctx, "block_resize", map[string]any{"node-name": node, "size": want}, nil)
		}
	}
	return nil
}
