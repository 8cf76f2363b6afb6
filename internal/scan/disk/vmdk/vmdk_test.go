package vmdk_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
	"github.com/buildyard/buildyard/internal/scan/disk/vmdk"
)

// memory is a file.
type memory struct{ *bytes.Reader }

func (m memory) NextData(off int64) (start, end int64, err error) { return off, m.Size(), nil }

func file(b []byte) qcow2.Layer { return qcow2.RawLayer(memory{bytes.NewReader(b)}, int64(len(b))) }

// files are those that a descriptor may name.
type files map[string][]byte

func (f files) open(name string) (qcow2.Layer, error) {
	b, isKnown := f[name]
	if !isKnown {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return file(b), nil
}

func read(t testing.TB, l qcow2.Layer) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(l, 0, l.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// random returns a disk of some sectors, most of which are zero.
func random(sectors int) []byte {
	b := make([]byte, sectors*sector)
	r, fill := rand.New(rand.NewPCG(5, 6)), rand.NewChaCha8([32]byte{2})
	for range 10 {
		at := r.IntN(len(b))
		_, _ = fill.Read(b[at:min(len(b), at+r.IntN(3000))])
		at = r.IntN(len(b))
		copy(b[at:], strings.Repeat("text that repeats ", r.IntN(200)))
	}
	return b
}

var forms = map[string]form{
	"sparse":           {grain: 8, entries: 16},
	"zero grains":      {grain: 8, entries: 16, zeroGrains: true},
	"stream":           {grain: 8, entries: 16, deflate: true, markers: true},
	"with a footer":    {grain: 8, entries: 16, deflate: true, markers: true, footer: true},
	"plain footer":     {grain: 8, entries: 16, markers: true, footer: true},
	"without markers":  {grain: 128, entries: 512, deflate: true},
	"of usual size":    {grain: 128, entries: 512, deflate: true, markers: true, footer: true, zeroGrains: true},
	"of small tables":  {grain: 1, entries: 3, deflate: true, markers: true},
	"of large grains":  {grain: 1024, entries: 2},
	"a part of grains": {grain: 16, entries: 512, deflate: true, markers: true},
}

func TestForms(t *testing.T) {
	want := random(1003)
	for name, f := range forms {
		t.Run(name, func(t *testing.T) {
			l, err := vmdk.Open(file(f.write(t, want)), nil)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(read(t, l), want) {
				t.Error("it differs")
			}
			checkRanges(t, l, want)
		})
	}
}

// checkRanges compares the ranges with data with the disk: others are zero, and grains of zeros are skipped.
func checkRanges(t *testing.T, l qcow2.Layer, want []byte) {
	t.Helper()
	data := int64(0)
	for off := int64(0); off < l.Size(); {
		r, ok, err := l.NextRange(off)
		if err != nil || !ok || r.Off != off || r.Len <= 0 || r.End() > l.Size() {
			t.Fatalf("range at %d: %+v, %v, %v", off, r, ok, err)
		}
		if r.Kind == qcow2.Data {
			data += r.Len
		} else if len(bytes.TrimLeft(want[off:r.End()], "\x00")) > 0 {
			t.Fatalf("range at %d has data: %+v", off, r)
		}
		off = r.End()
	}
	if data == 0 {
		t.Error("it has no data")
	}
}

// Grains of a form are skipped when they are zero.
func TestHoles(t *testing.T) {
	want := make([]byte, 10_000*sector)
	copy(want[5000*sector:], "data")
	for name, f := range forms {
		l, err := vmdk.Open(file(f.write(t, want)), nil)
		if err != nil {
			t.Fatal(err)
		}
		start, end, err := qcow2.NextData(l, 0)
		grain := int64(f.grain) * sector
		if err != nil || start != 5000*sector/grain*grain || end != start+grain {
			t.Errorf("%s: %d-%d, %v", name, start, end, err)
		}
		if start, end, err = qcow2.NextData(l, end); start != end || err != nil {
			t.Errorf("%s: %d-%d, %v", name, start, end, err)
		}
	}
}

// QEMU reads what the tests write.
func TestOracle(t *testing.T) {
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	want := random(128 * 40)
	if err := os.WriteFile(filepath.Join(dir, "raw"), want, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, f := range forms {
		if f.grain < 128 && f.entries < 512 || !f.markers && f.deflate {
			continue // QEMU's table cache and reads without markers have other sizes
		}
		image := filepath.Join(dir, "disk.vmdk")
		if err := os.WriteFile(image, f.write(t, want), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("qemu-img", "compare", "-f", "raw", "-F", "vmdk", filepath.Join(dir, "raw"),
			image).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

func TestDescriptor(t *testing.T) {
	disk := random(256)
	sparse := form{grain: 8, entries: 16}.write(t, disk[64*sector:192*sector])
	text := "# Disk DescriptorFile\r\nversion=1\r\nencoding=\"UTF-8\"\r\nCID=fffffffe\r\nparentCID=ffffffff\r\n" +
		"createType=\"custom\"\r\n\r\nRW 64 FLAT \"a flat file.vmdk\" 3\r\nRW 128 SPARSE \"sparse.vmdk\"\r\n" +
		"RDONLY 32 VMFS \"vmfs\"\r\nRW 32 ZERO\r\nddb.geometry.sectors = \"63\"\r\n"
	clear(disk[224*sector:])
	all := files{
		"a flat file.vmdk": append(make([]byte, 3*sector), disk[:64*sector]...), "sparse.vmdk": sparse,
		"vmfs": disk[192*sector : 224*sector],
	}
	l, err := vmdk.Open(file([]byte(text)), all.open)
	if err != nil {
		t.Fatal(err)
	}
	if l.Size() != 256*sector || !bytes.Equal(read(t, l), disk) {
		t.Error("it differs")
	}
	checkRanges(t, l, disk)
	if n, err := l.ReadAt(make([]byte, 100), 256*sector-10); n != 10 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %d, %v", n, err)
	}
	for old, c := range map[string]struct {
		new, want string
		damaged   bool
	}{
		"RW 64 FLAT":      {"RW 65 FLAT", "the file has 34304 bytes", true},
		"RW 128 SPARSE":   {"RW 129 SPARSE", "the file has 65536 bytes of the disk", true},
		"\"sparse.vmdk\"": {"\"other\"", "file does not exist", false},
		"\"vmfs\"":        {"vmfs", "it has no name", true},
		"\"vmfs\"\r\n":    {"\"vmfs\r\n", "has no end", true},
		"parentCID=ffffffff": {
			"parentCID=12\r\nparentFileNameHint=\"base.vmdk\"", `only the changes to "base.vmdk"`, false,
		},
		"parentCID=f":    {"parentCID=xf", "the parentCID", true},
		"RDONLY 32 VMFS": {"RW 32 VMFSSPARSE", `type "VMFSSPARSE" cannot be read`, false},
		"RW 32 ZERO":     {"RW 0 ZERO", "has \"0\" sectors", true},
		"RW 32 ZERO\r":   {"RW 9999999999999 ZERO\r", "sectors", true},
		"vmdk\" 3\r\n":   {"vmdk\" -3\r\n", "is at \"-3\"", true},
		"RW 64 FLAT \"a flat ": {
			"RW 32 FLAT \"vmfs\"\r\nRW 64 SPARSE \"a flat ", "header of a sparse extent is missing", true,
		},
	} {
		changed := strings.Replace(text, old, c.new, 1)
		if _, err := vmdk.Open(file([]byte(changed)), all.open); err == nil || changed == text ||
			!strings.Contains(err.Error(), c.want) || errors.Is(err, chunked.ErrDamaged) != c.damaged {
			t.Errorf("%q: %v", c.new, err)
		}
	}
	if _, err := vmdk.Open(file([]byte("# Disk DescriptorFile\n")), nil); !errors.Is(err, chunked.ErrDamaged) {
		t.Errorf("without extents: %v", err)
	}
	many := "# Disk DescriptorFile\n" + strings.Repeat("RW 1 ZERO\n", 2049)
	if _, err := vmdk.Open(file([]byte(many)), nil); err == nil || !strings.Contains(err.Error(), "more than 2048") {
		t.Errorf("many extents: %v", err)
	}
}

// What cannot be read is refused with its reason, and damage is named.
func TestRefused(t *testing.T) {
	le := binary.LittleEndian
	whole := forms["with a footer"]
	for name, c := range map[string]struct {
		form    form
		change  func(b []byte) []byte
		want    string
		damaged bool
	}{
		"ESX":        {whole, func(b []byte) []byte { copy(b, "COWD"); return b }, "sparse image of ESX", false},
		"a snapshot": {form{grain: 8, entries: 16, parent: "base.vmdk"}, nil, `only the changes to "base.vmdk"`, false},
		"version 4": {
			form{grain: 8, entries: 16},
			func(b []byte) []byte { le.PutUint32(b[4:], 4); return b },
			"version 4", false,
		},
		"compression": {
			form{grain: 8, entries: 16},
			func(b []byte) []byte { le.PutUint16(b[77:], 2); return b },
			"compression 2", false,
		},
		"no sectors": {
			form{grain: 8, entries: 16},
			func(b []byte) []byte { le.PutUint64(b[12:], 0); return b },
			"0 sectors", true,
		},
		"a huge disk": {
			form{grain: 8, entries: 16},
			func(b []byte) []byte { le.PutUint64(b[12:], 1<<40); return b },
			"directories", false,
		},
		"too many sectors": {
			form{grain: 8, entries: 16},
			func(b []byte) []byte { le.PutUint64(b[12:], 1<<62); return b }, "sectors", true,
		},
		"grains of 7": {
			form{grain: 8, entries: 16},
			func(b []byte) []byte { le.PutUint64(b[20:], 7); return b },
			"7 sectors", true,
		},
		"a huge grain": {
			form{grain: 8, entries: 16},
			func(b []byte) []byte { le.PutUint64(b[20:], 1<<40); return b },
			"a grain has", true,
		},
		"no entries": {
			form{grain: 8, entries: 16},
			func(b []byte) []byte { le.PutUint32(b[44:], 0); return b },
			"0 entries", true,
		},
		"a directory behind": {
			form{grain: 8, entries: 16},
			func(b []byte) []byte { le.PutUint64(b[56:], uint64(len(b)/sector)); return b }, "grain directory", true,
		},
		"a directory of overflow": {
			form{grain: 8, entries: 16},
			func(b []byte) []byte { le.PutUint64(b[56:], 1<<63); return b }, "grain directory", true,
		},
		"a descriptor behind": {
			form{grain: 8, entries: 16},
			func(b []byte) []byte { le.PutUint64(b[28:], 1<<30); return b }, "ends within the descriptor", true,
		},
		"a long descriptor": {
			form{grain: 8, entries: 16},
			func(b []byte) []byte { le.PutUint64(b[36:], 1<<30); return b }, "descriptor has", true,
		},
		"cut off": {whole, func(b []byte) []byte { return b[:len(b)-sector] }, "no footer", true},
		"short":   {whole, func(b []byte) []byte { return b[:300] }, "ends within the header", true},
		"tables that overlap": {form{grain: 8, entries: 16}, func(b []byte) []byte {
			at := le.Uint64(b[56:]) * sector
			copy(b[at+4:at+8], b[at:at+4])
			return b
		}, "overlap", true},
		"a table behind": {form{grain: 8, entries: 16}, func(b []byte) []byte {
			le.PutUint32(b[le.Uint64(b[56:])*sector:], 1<<31)
			return b
		}, "behind the end", true},
	} {
		b := c.form.write(t, bytes.Repeat([]byte("data"), 1000*sector/4))
		if c.change != nil {
			b = c.change(b)
		}
		if _, err := vmdk.Open(file(b), files{}.open); err == nil || !strings.Contains(err.Error(), c.want) ||
			errors.Is(err, chunked.ErrDamaged) != c.damaged {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Damage of a grain is an error of what reads it, and of nothing else.
func TestDamagedGrains(t *testing.T) {
	want := bytes.Repeat([]byte("some data "), 100*sector/10)
	f := form{grain: 8, entries: 16, deflate: true, markers: true}
	le := binary.LittleEndian
	for name, change := range map[string]func(grain, entry []byte){
		"the sector of another": func(grain, _ []byte) { le.PutUint64(grain, 16) },
		"no bytes":              func(grain, _ []byte) { le.PutUint32(grain[8:], 0) },
		"many bytes":            func(grain, _ []byte) { le.PutUint32(grain[8:], 1<<31) },
		"fewer bytes":           func(grain, _ []byte) { le.PutUint32(grain[8:], le.Uint32(grain[8:])-6) },
		"other bytes":           func(grain, _ []byte) { grain[20] ^= 0xff },
		"behind the file":       func(_, entry []byte) { le.PutUint32(entry, 1<<30) },
	} {
		b := f.write(t, want)
		table := b[int(le.Uint32(b[le.Uint64(b[56:])*sector:]))*sector:]
		change(b[int(le.Uint32(table[4:]))*sector:], table[4:]) // the second grain
		l, err := vmdk.Open(file(b), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.ReadAt(make([]byte, 1), 8*sector); !errors.Is(err, chunked.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		got := make([]byte, 8*sector)
		for _, at := range []int64{0, 16 * sector} {
			if _, err := l.ReadAt(got, at); err != nil || !bytes.Equal(got, want[at:at+int64(len(got))]) {
				t.Errorf("%s: the grain at %d: %v", name, at, err)
			}
		}
	}
	long := form{grain: 4, entries: 16, deflate: true, markers: true}.write(t, want)
	le.PutUint64(long[20:], 8) // grains of the header are longer than those that are stored
	l, err := vmdk.Open(file(long), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.ReadAt(make([]byte, 1), 0); !errors.Is(err, chunked.ErrDamaged) ||
		!strings.Contains(err.Error(), "2048 bytes instead of 4096") {
		t.Errorf("short grains: %v", err)
	}
}

// patched changes bytes: a patch is two bytes of offset and two of content.
func patched(b, patches []byte) []byte {
	b = bytes.Clone(b)
	for ; len(patches) >= 4; patches = patches[4:] {
		copy(b[(int(patches[0])<<8|int(patches[1]))%len(b):], patches[2:4])
	}
	return b
}

// FuzzOpen changes some bytes of an image, and reads it.
func FuzzOpen(f *testing.F) {
	images := [][]byte{[]byte("# Disk DescriptorFile\nRW 8 FLAT \"self\" 0\nRW 8 SPARSE \"sparse\"\nRW 3 ZERO\n")}
	for _, name := range slices.Sorted(maps.Keys(forms)) {
		if forms[name].grain < 128 {
			images = append(images, forms[name].write(f, random(40)))
		}
	}
	for k := range images {
		f.Add(uint8(k), []byte{})
		f.Add(uint8(k), []byte{0, 12, 0xff, 0xff, 0, 20, 1, 0})
	}
	sparse := forms["sparse"].write(f, random(40))
	f.Fuzz(func(_ *testing.T, index uint8, patches []byte) {
		b := patched(images[int(index)%len(images)], patches)
		l, err := vmdk.Open(file(b), files{"self": bytes.Repeat(b, 20), "sparse": sparse}.open)
		if err != nil {
			return
		}
		for _, at := range []int64{0, l.Size() / 2, l.Size() - 5000} {
			_, _ = l.ReadAt(make([]byte, 64<<10), max(0, at))
		}
		for at, n := int64(0), 0; n < 100; n++ {
			start, end, err := qcow2.NextData(l, at)
			if err != nil || start >= end {
				break
			}
			at = end
		}
	})
}
