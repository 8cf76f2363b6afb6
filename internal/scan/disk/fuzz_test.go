package disk_test

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
)

const smallCluster = 512

// small returns a qcow2 image with clusters of 512 bytes and a backing file: of its first four
// clusters one is data, one is compressed, one is zero and one is that of the backing file.
func small(t testing.TB, backing, format string) []byte {
	t.Helper()
	const size, l1, l2, data = 64 << 10, smallCluster, 2 * smallCluster, 3 * smallCluster
	b, be := make([]byte, 5*smallCluster), binary.BigEndian
	copy(b, "QFI\xfb")
	be.PutUint32(b[4:], 3)
	be.PutUint32(b[20:], 9)
	be.PutUint64(b[24:], size)
	be.PutUint32(b[36:], size/(smallCluster*smallCluster/8))
	be.PutUint64(b[40:], l1)
	be.PutUint32(b[100:], 112)
	if backing != "" {
		be.PutUint32(b[112:], 0xe2792aca)
		be.PutUint32(b[116:], uint32(len(format)))
		copy(b[120:], format)
		const name = 144
		be.PutUint64(b[8:], name)
		be.PutUint32(b[16:], uint32(len(backing)))
		copy(b[name:], backing)
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, 9)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(bytes.Repeat([]byte("packed--"), smallCluster/8)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	be.PutUint64(b[l1:], l2|1<<63)
	be.PutUint64(b[l2:], data|1<<63)
	be.PutUint64(b[l2+8:], data+smallCluster|1<<62)
	be.PutUint64(b[l2+16:], 1)
	copy(b[data:], bytes.Repeat([]byte("data"), smallCluster/4))
	copy(b[data+smallCluster:], packed.Bytes())
	return b
}

// patched changes bytes: a patch is two bytes of offset and two of content.
func patched(b, patches []byte) []byte {
	b = bytes.Clone(b)
	for ; len(patches) >= 4; patches = patches[4:] {
		copy(b[(int(patches[0])<<8|int(patches[1]))%len(b):], patches[2:4])
	}
	return b
}

func writeAll(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSmallChain(t *testing.T) {
	dir := t.TempDir()
	writeAll(t, dir, map[string][]byte{
		"top": small(t, "middle", "qcow2"), "middle": small(t, "base", ""), "base": bytes.Repeat([]byte("base"), 1<<14),
	})
	want := append(bytes.Repeat([]byte("data"), 128), bytes.Repeat([]byte("packed--"), 64)...)
	want = append(append(want, make([]byte, 512)...), bytes.Repeat([]byte("base"), 1<<14-3*128)...)
	if !bytes.Equal(content(t, filepath.Join(dir, "top")), want) {
		t.Error("it differs")
	}
}

// FuzzImage changes some bytes of an image and its backing file, and reads the disk.
func FuzzImage(f *testing.F) {
	top, base := small(f, "base", "qcow2"), small(f, "", "")
	f.Add([]byte{}, []byte{})
	f.Add([]byte{0, 144, 46, 46}, []byte{0, 26, 255, 255})
	f.Add([]byte{4, 0, 255, 255, 0, 20, 0, 21}, []byte{2, 0, 0, 9, 4, 8, 127, 255})
	f.Fuzz(func(t *testing.T, one, two []byte) {
		dir := t.TempDir()
		writeAll(t, dir, map[string][]byte{"top": patched(top, one), "base": patched(base, two)})
		i, err := disk.OpenImage(filepath.Join(dir, "top"))
		if err != nil {
			return
		}
		defer i.Close()
		for _, at := range []int64{0, i.Size() / 2, i.Size() - 5000} {
			_, _ = i.ReadAt(make([]byte, 64<<10), max(0, at))
		}
		for at, n := int64(0), 0; n < 100; n++ {
			start, end, err := i.NextData(at)
			if err != nil || start >= end {
				break
			}
			at = end
		}
		_, _, _ = disk.Volumes(i, i.Size())
	})
}

// FuzzTemplate changes some bytes of the list of a template and of its layers.
func FuzzTemplate(f *testing.F) {
	from := filepath.Join(f.TempDir(), "storage")
	one, two := filepath.Join(f.TempDir(), "one"), filepath.Join(f.TempDir(), "two")
	writeAll(f, filepath.Dir(one), map[string][]byte{"one": bytes.Repeat([]byte("one-"), 5000)})
	writeAll(f, filepath.Dir(two),
		map[string][]byte{"two": append(make([]byte, 8192), bytes.Repeat([]byte("two-"), 5000)...)})
	if err := disktest.WriteTemplate(f.Context(), from,
		disktest.Template{ID: templateID, Versions: []string{one, two}, Format: "raw"}); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{}, []byte{})
	f.Add([]byte{0, 60, '9', '9'}, []byte{0, 3, 1, 1})
	f.Fuzz(func(t *testing.T, list, layers []byte) {
		base := t.TempDir()
		err := filepath.WalkDir(from, func(name string, e os.DirEntry, err error) error {
			to := filepath.Join(base, name[len(from):])
			if err != nil || e.IsDir() {
				return errors.Join(err, os.MkdirAll(to, 0o755))
			}
			b, err := os.ReadFile(name)
			if filepath.Ext(name) == ".json" {
				b = patched(b, list)
			} else {
				b = patched(b, layers)
			}
			return errors.Join(err, os.WriteFile(to, b, 0o600))
		})
		if err != nil {
			t.Fatal(err)
		}
		tpl, err := openTemplate(base, templateID, "")
		if err != nil {
			return
		}
		for _, d := range tpl.Disks {
			_, _ = io.ReadAll(io.NewSectionReader(d, 0, min(d.Size, 1<<20)))
			_, _, _ = disk.Volumes(d, d.Size)
		}
		if err := tpl.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A small file with huge tables takes little memory, be it one of a chain.
func TestMemoryOfTables(t *testing.T) {
	dir := t.TempDir()
	b := small(t, "next", "qcow2")
	binary.BigEndian.PutUint64(b[24:], 128<<30)
	binary.BigEndian.PutUint32(b[36:], 4<<20)
	last := small(t, "", "")
	writeAll(t, dir, map[string][]byte{"top": b, "next": b, "alone": last})
	for _, name := range []string{"top", "next"} {
		if err := os.Truncate(filepath.Join(dir, name), 40<<20); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	i, err := disk.OpenImage(filepath.Join(dir, "top"))
	if err == nil {
		_ = i.Close()
		t.Error("it was opened")
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 100<<20 {
		t.Errorf("it took %d bytes: %v", took, err)
	}
}
