package udif_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
	"github.com/buildyard/buildyard/internal/scan/disk/udif"
	"github.com/buildyard/buildyard/internal/scan/disk/udif/udiftest"
)

const sector = 512

// random returns a disk of some sectors with zeros, noise and text.
func random(sectors int) []byte {
	b := make([]byte, sectors*sector)
	r, fill := rand.New(rand.NewPCG(7, 8)), rand.NewChaCha8([32]byte{3})
	for range 12 {
		at := r.IntN(len(b))
		_, _ = fill.Read(b[at:min(len(b), at+r.IntN(9000))])
		at = r.IntN(len(b))
		copy(b[at:], strings.Repeat(fmt.Sprintf("text that repeats %d times ", at), r.IntN(900)))
	}
	return b
}

// need skips a test without a program.
func need(t testing.TB, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); name != "" && err != nil {
			t.Skip(err)
		}
	}
}

func write(t testing.TB, disk []byte, o udiftest.Options) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := udiftest.Write(&out, bytes.NewReader(disk), int64(len(disk)), o); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func open(b []byte) (qcow2.Layer, error) { return udif.Open(bytes.NewReader(b), int64(len(b))) }

// Every kind of chunks reads as the disk, in one part and in several, with tables in either place.
func TestKinds(t *testing.T) {
	want := random(4001)
	for _, p := range udiftest.Packings {
		for _, o := range []udiftest.Options{
			{}, {Parts: 5}, {Fork: true, Parts: 3}, {ChunkBytes: 4096, Parts: 2}, {ChunkBytes: 1 << 20},
		} {
			o.Packing = p
			name := fmt.Sprintf("%s %d parts chunks of %d fork %v", p.Name, o.Parts, o.ChunkBytes, o.Fork)
			t.Run(name, func(t *testing.T) {
				need(t, p.Program)
				l, err := open(write(t, want, o))
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(io.NewSectionReader(l, 0, l.Size()))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("it differs: %d bytes, %v", len(got), err)
				}
				checkRanges(t, l, want)
			})
		}
	}
}

// checkRanges compares the ranges without data with the disk.
func checkRanges(t *testing.T, l qcow2.Layer, want []byte) {
	t.Helper()
	zeros := int64(0)
	for off := int64(0); off < l.Size(); {
		r, ok, err := l.NextRange(off)
		if err != nil || !ok || r.Off != off || r.Len <= 0 || r.End() > l.Size() {
			t.Fatalf("range at %d: %+v, %v, %v", off, r, ok, err)
		}
		if r.Kind != qcow2.Data {
			zeros += r.Len
			if len(bytes.TrimLeft(want[off:r.End()], "\x00")) > 0 {
				t.Fatalf("range at %d has data: %+v", off, r)
			}
		}
		off = r.End()
	}
	if zeros == 0 && len(bytes.TrimLeft(want[1<<20:], "\x00")) == 0 {
		t.Error("it has no holes")
	}
}

// Other programs read the bytes that the tests write, and find their checksums right.
func TestOracles(t *testing.T) {
	want := random(3000)
	for _, c := range []struct {
		program  string
		packings string
		options  udiftest.Options
		args     func(from, to string) []string
	}{
		{"7z", "raw adc zlib bzip2 lzfse xz", udiftest.Options{}, sevenZip},
		{"7z", "zlib", udiftest.Options{Parts: 3}, sevenZip},
		{"dmg2img", "raw adc zlib bzip2", udiftest.Options{Parts: 3}, func(from, to string) []string {
			return []string{"dmg2img", "-i", from, "-o", to}
		}},
		{"qemu-img", "raw zlib", udiftest.Options{Parts: 3}, qemuImg},
		{"qemu-img", "zlib", udiftest.Options{Fork: true}, qemuImg},
	} {
		for name := range strings.SplitSeq(c.packings, " ") {
			t.Run(fmt.Sprintf("%s %s %d", c.program, name, c.options.Parts), func(t *testing.T) {
				o := c.options
				o.Packing = udiftest.Named(name)
				need(t, c.program, o.Packing.Program)
				dir := t.TempDir()
				from, to := filepath.Join(dir, "image.dmg"), filepath.Join(dir, "raw")
				if err := os.WriteFile(from, write(t, want, o), 0o600); err != nil {
					t.Fatal(err)
				}
				args := c.args(from, to)
				out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes, %v: %s", len(got), err, out)
				}
			})
		}
	}
}

func sevenZip(from, to string) []string {
	return []string{"sh", "-c", `7z x -tdmg -so "$1" >"$2"`, "sh", from, to}
}

func qemuImg(from, to string) []string {
	return []string{"qemu-img", "convert", "-f", "dmg", "-O", "raw", from, to}
}

// change decodes the table of an image in one part, changes it, and encodes it again.
func change(t testing.TB, image []byte, do func(table []byte)) []byte {
	t.Helper()
	start := bytes.Index(image, []byte("<data>")) + len("<data>")
	end := bytes.Index(image, []byte("</data>"))
	table, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(image[start:end])), ""))
	if err != nil {
		t.Fatal(err)
	}
	do(table)
	text := base64.StdEncoding.EncodeToString(table)
	text += strings.Repeat(" ", end-start-len(text))
	return bytes.Join([][]byte{image[:start], []byte(text), image[end:]}, nil)
}

// entry returns a chunk of a table: its kind, 4 bytes, and its sector, sectors, offset and length.
func entry(table []byte, k int) []byte { return table[204+40*k:] }

// Damage and what cannot be read are refused with their reason.
func TestRefused(t *testing.T) {
	be := binary.BigEndian
	whole := write(t, random(2000), udiftest.Options{Packing: udiftest.Named("zlib")})
	trailer := func(at int, v uint64) func(b []byte) []byte {
		return func(b []byte) []byte { be.PutUint64(b[len(b)-512+at:], v); return b }
	}
	table := func(do func(table []byte)) func(b []byte) []byte {
		return func(b []byte) []byte { return change(t, b, do) }
	}
	replace := func(from, to string) func(b []byte) []byte {
		return func(b []byte) []byte { return bytes.Replace(b, []byte(from), []byte(to), 1) }
	}
	for name, c := range map[string]struct {
		change  func(b []byte) []byte
		want    string
		damaged bool
	}{
		"no trailer":       {func(b []byte) []byte { return b[:len(b)-1] }, "no trailer", true},
		"a short file":     {func(b []byte) []byte { return b[:100] }, "100 bytes", true},
		"segments":         {func(b []byte) []byte { b[len(b)-512+63] = 3; return b }, "in 3 files", false},
		"no sectors":       {trailer(492, 0), "0 sectors", true},
		"a huge disk":      {trailer(492, 1<<62), "sectors", true},
		"a smaller disk":   {trailer(492, 1999), "2000 sectors at 0 of 1999", true},
		"a list behind":    {trailer(216, 1<<62), "property list has", true},
		"a long list":      {trailer(224, 1<<62), "property list has", true},
		"no list":          {trailer(224, 0), "neither a property list", true},
		"half a list":      {trailer(224, 900), "its property list", true},
		"data behind":      {trailer(24, 1<<40), "data fork", true},
		"another list":     {replace("blkx", "abcd"), "no chunks", true},
		"text for bytes":   {replace("<data>\n", "<data>!"), "property list", true},
		"no header":        {table(func(b []byte) { b[0] = 'x' }), "no header", true},
		"many chunks":      {table(func(b []byte) { be.PutUint32(b[200:], 1<<31) }), "2147483648 chunks", true},
		"sectors behind":   {table(func(b []byte) { be.PutUint64(b[8:], 1) }), "2000 sectors at 1", true},
		"an offset behind": {table(func(b []byte) { be.PutUint64(b[24:], 1<<63) }), "the data of a block table", true},
		"a chunk behind":   {table(func(b []byte) { be.PutUint64(entry(b, 1)[8:], 1990) }), "512 sectors at 19", true},
		"a chunk of overflow": {
			table(func(b []byte) { be.PutUint64(entry(b, 1)[16:], 1<<63) }), "sectors at 0 of a part of 2000", true,
		},
		"bytes behind":   {table(func(b []byte) { be.PutUint64(entry(b, 1)[24:], 1<<63) }), "a chunk has", true},
		"many bytes":     {table(func(b []byte) { be.PutUint64(entry(b, 1)[32:], 1<<63) }), "a chunk has", true},
		"no bytes":       {table(func(b []byte) { be.PutUint64(entry(b, 1)[32:], 0) }), "0 bytes for", true},
		"an unknown one": {table(func(b []byte) { be.PutUint32(entry(b, 1), 0x80000009) }), "kind 0x80000009", false},
		"overlap":        {table(func(b []byte) { be.PutUint64(entry(b, 2)[8:], 511) }), "overlap", true},
		"stored length":  {table(func(b []byte) { be.PutUint32(entry(b, 1), 1) }), "a stored chunk has", true},
		"only comments": {table(func(b []byte) {
			for k := range int(be.Uint32(b[200:])) {
				be.PutUint32(entry(b, k), 0x7ffffffe)
			}
		}), "no chunks", true},
	} {
		b := c.change(bytes.Clone(whole))
		if _, err := open(b); err == nil || !strings.Contains(err.Error(), c.want) ||
			errors.Is(err, chunked.ErrDamaged) != c.damaged {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Damage of a chunk is an error of what reads it, and of nothing else.
func TestDamagedChunks(t *testing.T) {
	var text bytes.Buffer
	for k := 0; text.Len() < 2000*sector; k++ {
		fmt.Fprintf(&text, "line %d of text\n", k*k%9973)
	}
	want := text.Bytes()[:2000*sector]
	for _, p := range udiftest.Packings {
		t.Run(p.Name, func(t *testing.T) {
			need(t, p.Program)
			whole := write(t, want, udiftest.Options{Packing: p})
			for name, do := range damages {
				if p.Name == "raw" && name != "no chunk" {
					continue // stored bytes have no structure
				}
				l, err := open(change(t, whole, func(table []byte) { do(entry(table, 2)) }))
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if n, err := l.ReadAt(make([]byte, 512*sector), 512*sector); !errors.Is(err, chunked.ErrDamaged) {
					t.Errorf("%s: %d, %v", name, n, err)
				}
				got := make([]byte, 512*sector)
				for _, at := range []int64{0, 1024 * sector} {
					if _, err := l.ReadAt(got, at); err != nil || !bytes.Equal(got, want[at:at+int64(len(got))]) {
						t.Errorf("%s: the chunk at %d: %v", name, at, err)
					}
				}
			}
		})
	}
}

// damages change the entry of a compressed chunk.
var damages = map[string]func(entry []byte){
	"longer chunks": func(e []byte) { binary.BigEndian.PutUint64(e[16:], 511) },
	"no chunk":      func(e []byte) { binary.BigEndian.PutUint64(e[16:], 0) },
	"bytes missing": func(e []byte) { binary.BigEndian.PutUint64(e[32:], binary.BigEndian.Uint64(e[32:])/2) },
	"other bytes":   func(e []byte) { binary.BigEndian.PutUint64(e[24:], binary.BigEndian.Uint64(e[24:])+1) },
	"another kind": func(e []byte) {
		binary.BigEndian.PutUint32(e, 0x80000004+(binary.BigEndian.Uint32(e)-0x80000004+1)%5)
	},
}

// The offsets of chunks may begin with those of their table.
func TestOffsetOfTable(t *testing.T) {
	be := binary.BigEndian
	want := random(4000)
	image := change(t, write(t, want, udiftest.Options{Packing: udiftest.Named("zlib")}), func(b []byte) {
		// The first chunk ends where the others begin.
		shift := be.Uint64(entry(b, 1)[32:])
		be.PutUint64(b[24:], shift)
		for k := range int(be.Uint32(b[200:])) {
			be.PutUint64(entry(b, k)[24:], be.Uint64(entry(b, k)[24:])-shift)
		}
		be.PutUint32(entry(b, 1), 0)
	})
	l, err := open(image)
	if err != nil {
		t.Fatal(err)
	}
	clear(want[:512*sector])
	if got, err := io.ReadAll(io.NewSectionReader(l, 0, l.Size())); err != nil || !bytes.Equal(got, want) {
		t.Errorf("it differs: %v", err)
	}
}

// Deeply nested and endless lists are refused.
func TestHostileLists(t *testing.T) {
	whole := write(t, random(2000), udiftest.Options{Packing: udiftest.Named("zlib")})
	start, end := bytes.Index(whole, []byte("<?xml")), len(whole)-512
	for name, list := range map[string]string{
		"nested":       strings.Repeat("<dict>", 1_000_000),
		"not closed":   "<plist><dict>",
		"closed":       "<plist></dict>",
		"closed twice": "<plist></plist></plist>",
		"many tables": "<plist><dict><key>resource-fork</key><dict><key>blkx</key><array>" +
			strings.Repeat("<dict><key>Data</key><data>AA==</data></dict>", 1025) + "</array></dict></dict></plist>",
		"another place": "<plist><dict><key>blkx</key><array><dict><key>Data</key><data>AA==</data></dict></array>" +
			"</dict></plist>",
	} {
		b := bytes.Join([][]byte{whole[:start], []byte(list), whole[end:]}, nil)
		binary.BigEndian.PutUint64(b[len(b)-512+224:], uint64(len(list)))
		if _, err := open(b); !errors.Is(err, chunked.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// patched changes bytes, counted from the end: a patch is two bytes of offset and two of
// content.
func patched(b, patches []byte) []byte {
	b = bytes.Clone(b)
	for ; len(patches) >= 4; patches = patches[4:] {
		copy(b[len(b)-1-(int(patches[0])<<8|int(patches[1]))%len(b):], patches[2:4])
	}
	return b
}

// FuzzOpen changes the tables of an image, then the image, and reads it.
func FuzzOpen(f *testing.F) {
	var images [][]byte
	for _, o := range []udiftest.Options{{}, {Fork: true, Parts: 2}} {
		for _, name := range []string{"raw", "adc", "zlib", "lzfse"} {
			o.Packing, o.ChunkBytes = udiftest.Named(name), 2048
			f.Add(uint8(len(images)), []byte{}, []byte{})
			f.Add(uint8(len(images)), []byte{1, 0, 0xff, 0xff}, []byte{0, 18, 1, 0})
			images = append(images, write(f, random(40), o))
		}
	}
	f.Fuzz(func(t *testing.T, index uint8, tables, patches []byte) {
		b := images[int(index)%len(images)]
		if bytes.Contains(b, []byte("<data>")) {
			b = change(t, b, func(table []byte) { copy(table, patched(table, tables)) })
		}
		l, err := open(patched(b, patches))
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
