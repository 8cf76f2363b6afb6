package diskfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/qcow2"
)

// Only regular files are opened as disks.
func TestOpenRegular(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, st, err := OpenRegular(path)
	if err != nil || st.Size() != 5 {
		t.Fatalf("%v, %v", st, err)
	}
	_ = f.Close()
	if _, _, err := OpenRegular(dir); farm.CodeOf(err) != farm.CodeRefused {
		t.Errorf("a directory: %v", err)
	}
	if _, _, err := OpenRegular(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for format, want := range map[string]bool{"": true, "raw": true, "qcow2": false, "vmdk": false} {
		d, err := Disk{Path: path, Format: format}.Open()
		if (err == nil) != want || err != nil && farm.CodeOf(err) != farm.CodeRefused {
			t.Errorf("format %q: %v", format, err)
		}
		if err == nil {
			for n := -1; n < 3; n++ {
				if _, err := d.ChangesAbove(n); err == nil {
					t.Errorf("one file has changes above %d", n)
				}
			}
			_ = d.Close()
		}
	}
}

// ranges are overlays that hold these ranges of a disk, which touch.
type ranges []qcow2.Range

func (r ranges) Size() int64                           { return r[len(r)-1].End() }
func (r ranges) ReadAt(p []byte, _ int64) (int, error) { return len(p), nil }

func (r ranges) NextRange(off int64) (qcow2.Range, bool, error) {
	for _, next := range r {
		if off < next.End() {
			return qcow2.Range{Off: off, Len: next.End() - off, Kind: next.Kind}, true, nil
		}
	}
	return qcow2.Range{}, false, nil
}

// Changes in overlays cover whole blocks: a partly held block is data, since the rest of it comes from below.
func TestOverlayChanges(t *testing.T) {
	const block = blob.BlockSize
	held := func(kind qcow2.Kind, off, end int64) qcow2.Range {
		return qcow2.Range{Off: off, Len: end - off, Kind: kind}
	}
	change := func(kind blob.ChangeKind, off, end int64) blob.Change {
		return blob.Change{Off: off, Len: end - off, Kind: kind}
	}
	for name, c := range map[string]struct {
		held ranges
		want []blob.Change
	}{
		"nothing": {ranges{held(qcow2.Absent, 0, 4*block)}, nil},
		"data, zeros": {
			ranges{held(qcow2.Absent, 0, block), held(qcow2.Data, block, 2*block), held(qcow2.Zero, 2*block, 4*block)},
			[]blob.Change{change(blob.ChangeData, block, 2*block), change(blob.ChangeZero, 2*block, 4*block)},
		},
		"the begin of a block": {
			ranges{held(qcow2.Zero, 0, 512), held(qcow2.Absent, 512, 3*block)},
			[]blob.Change{change(blob.ChangeData, 0, block)},
		},
		"the end of a block": {
			ranges{held(qcow2.Absent, 0, block+512), held(qcow2.Zero, block+512, 2*block), held(qcow2.Absent, 2*block,
				3*block)},
			[]blob.Change{change(blob.ChangeData, block, 2*block)},
		},
		"a block and a half": {
			ranges{held(qcow2.Zero, 0, block+512), held(qcow2.Absent, block+512, 3*block)},
			[]blob.Change{change(blob.ChangeZero, 0, block), change(blob.ChangeData, block, 2*block)},
		},
		"a disk that ends in a block": {
			ranges{held(qcow2.Absent, 0, block), held(qcow2.Zero, block, 2*block+512)},
			[]blob.Change{change(blob.ChangeZero, block, 2*block+512)},
		},
		"the last bytes": {
			ranges{held(qcow2.Absent, 0, block), held(qcow2.Data, block, block+512), held(qcow2.Absent, block+512,
				block+1024)},
			[]blob.Change{change(blob.ChangeData, block, block+1024)},
		},
	} {
		changes := OverlayChanges{&OpenDisk{topLayer: c.held}, c.held}
		var got []blob.Change
		for off := int64(0); ; {
			next, ok, err := changes.NextChange(off)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			got, off = append(got, next), next.Off+next.Len
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
