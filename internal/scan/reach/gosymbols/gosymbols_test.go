package gosymbols

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// table returns the smallest table of names.
func table(order binary.ByteOrder, magic uint32, word int, names string) []byte {
	header := make([]byte, 8+headerWords*word)
	order.PutUint32(header, magic)
	header[6], header[7] = 1, byte(word)
	end := uint64(len(header) + len(names))
	for i, v := range []uint64{1, 1, 0, uint64(len(header)), end, end, end, end} {
		if word == 4 {
			order.PutUint32(header[8+4*i:], uint32(v))
		} else {
			order.PutUint64(header[8+8*i:], v)
		}
	}
	return append(header, names...)
}

// program returns the smallest ELF file with a section that is also a segment.
func program(t testing.TB, section string, data []byte) []byte {
	t.Helper()
	names := "\x00" + section + "\x00.shstrtab\x00"
	const head, segments = 64, 56
	at := uint64(head + segments)
	strs := at + uint64(len(data))
	var out bytes.Buffer
	for _, part := range []any{
		[]byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"), uint16(2), uint16(62), uint32(1), uint64(0),
		uint64(head), strs + uint64(len(names)), uint32(0), uint16(head), uint16(segments), uint16(1), uint16(64),
		uint16(3), uint16(2),
		uint32(1), uint32(4), at, uint64(0x1000), uint64(0x1000), uint64(len(data)), uint64(len(data)), uint64(8),
		data, []byte(names), make([]byte, 64),
		sectionHeader(1, 1, at, uint64(len(data))), sectionHeader(uint32(len(section)+2), 3, strs, uint64(len(names))),
	} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func sectionHeader(name, kind uint32, offset, size uint64) []byte {
	b := make([]byte, 64)
	binary.LittleEndian.PutUint32(b, name)
	binary.LittleEndian.PutUint32(b[4:], kind)
	binary.LittleEndian.PutUint64(b[24:], offset)
	binary.LittleEndian.PutUint64(b[32:], size)
	return b
}

func list(t testing.TB, data []byte) ([]string, error) {
	t.Helper()
	var out []string
	err := Each(t.Context(), bytes.NewReader(data), func(f Function) { out = append(out, f.Package+" "+f.Name) })
	return out, err
}

// compressed returns a program whose section is marked as compressed, which no linker does; its segment is not.
func compressed(t testing.TB) []byte {
	t.Helper()
	b := program(t, ".gopclntab", table(binary.LittleEndian, magic120, 8, someNames))
	const shfCompressed = 0x800
	binary.LittleEndian.PutUint64(b[len(b)-2*64+8:], shfCompressed)
	return b
}

const someNames = "runtime.main\x00go:buildid\x00type:.eq.a/b.T\x00_cgo_x\x00" +
	"a.test/b.(*T[go.shape.int]).M\x00main.F[...]\x00\x00\x00"

// TestTable: the table is found by its section, and elsewhere by its header, in each order of bytes.
func TestTable(t *testing.T) {
	want := []string{"runtime main", "a.test/b T.M", "main F"}
	garbage := bytes.Repeat([]byte{0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8}, 40_000)
	for name, data := range map[string][]byte{
		"section":       program(t, ".gopclntab", table(binary.LittleEndian, magic120, 8, someNames)),
		"of PIE":        program(t, ".data.rel.ro.gopclntab", table(binary.LittleEndian, magic118, 8, someNames)),
		"32 bits":       program(t, ".gopclntab", table(binary.LittleEndian, magic120, 4, someNames)),
		"big endian":    program(t, ".gopclntab", table(binary.BigEndian, magic120, 4, someNames)),
		"big endian 64": program(t, ".gopclntab", table(binary.BigEndian, magic118, 8, someNames)),
		"search": program(t, ".rodata", slices.Concat(garbage, table(binary.LittleEndian, magic120, 8, someNames),
			make([]byte, 100))),
		"search, big endian": program(t, ".rodata", slices.Concat(make([]byte, chunkBytes-12),
			table(binary.BigEndian, magic118, 4, someNames))),
		"compressed section": compressed(t),
	} {
		if got, err := list(t, data); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestBadTable: what is not read whole is an error.
func TestBadTable(t *testing.T) {
	little := binary.LittleEndian
	good := table(little, magic120, 8, someNames)
	change := func(at int, b byte) []byte {
		out := slices.Clone(good)
		out[at] = b
		return program(t, ".gopclntab", out)
	}
	of := func(names string) []byte { return program(t, ".gopclntab", table(little, magic120, 8, names)) }
	tooLong := strings.Repeat("x", 3*maxNameBytes)
	for name, tc := range map[string]struct {
		data []byte
		want error
	}{
		"no table":          {program(t, ".rodata", make([]byte, 1000)), ErrNoTable},
		"unknown version":   {change(0, 0xfa), ErrNoTable},
		"padding":           {change(4, 1), ErrDamaged},
		"size of a pointer": {change(7, 5), ErrDamaged},
		"no functions":      {change(8, 0), ErrDamaged},
		"too few names":     {change(9, 9), ErrDamaged},
		"names in header":   {change(32, 8), ErrDamaged},
		"names outside":     {change(41, 7), ErrDamaged},
		"short header":      {program(t, ".gopclntab", good[:60]), ErrDamaged},
		"empty":             {program(t, ".gopclntab", nil), ErrDamaged},
		"no runtime":        {of("main.main\x00"), ErrDamaged},
		"no end":            {of("runtime.main\x00main.m"), ErrDamaged},
		"a long name":       {of("runtime.main\x00" + tooLong + "\x00"), ErrDamaged},
		"no end of it":      {of("runtime.main\x00" + tooLong), ErrDamaged},
		"two programs":      {program(t, ".rodata", append(slices.Clone(good), good...)), ErrAmbiguous},
	} {
		if got, err := list(t, tc.data); !errors.Is(err, tc.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	whole := program(t, ".gopclntab", table(little, magic120, 8, someNames))
	for n := range whole {
		if got, err := list(t, whole[:n]); err == nil {
			t.Errorf("of %d bytes: %q", n, got)
		}
	}
}

// TestFileCutOff: the section ends after the end of the file.
func TestFileCutOff(t *testing.T) {
	data := program(t, ".gopclntab", table(binary.LittleEndian, magic120, 8, someNames))
	from := bytes.Index(data, []byte("main.F"))
	r := &shortReader{bytes.NewReader(data), int64(from), int64(from) + 100}
	var got []string
	err := Each(t.Context(), r, func(f Function) { got = append(got, f.Name) })
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("%q, %v", got, err)
	}
}

// shortReader has no bytes in a range, as a file that became shorter.
type shortReader struct {
	*bytes.Reader
	from, to int64
}

func (r *shortReader) ReadAt(p []byte, off int64) (int, error) {
	if off <= r.from && off+int64(len(p)) > r.from && off+int64(len(p)) < r.to {
		n, _ := r.Reader.ReadAt(p[:r.from-off], off)
		return n, io.EOF
	}
	return r.Reader.ReadAt(p, off)
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, section := range []string{".gopclntab", ".rodata"} {
		data := program(t, section, table(binary.LittleEndian, magic120, 8, someNames))
		if err := Each(ctx, bytes.NewReader(data), func(Function) {}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", section, err)
		}
	}
}

func TestParseName(t *testing.T) {
	for name, want := range map[string]string{
		"main.main":                                   "main main",
		"fmt.(*pp).printArg":                          "fmt pp.printArg",
		"net/url.Values.Get":                          "net/url Values.Get",
		"gopkg.in/yaml%2ev3.Unmarshal":                "gopkg.in/yaml.v3 Unmarshal",
		"go.uber.org/zap.New":                         "go.uber.org/zap New",
		"a.test/b%zz.F":                               "",
		"slices.Sort[go.shape.[]int,a/b.T]":           "slices Sort",
		"a/b.(*Map[go.shape.struct { X a/c.T }]).Get": "a/b Map.Get",
		"a/b.Map[...].Get":                            "a/b Map.Get",
		"a/b.F.func1":                                 "a/b F.func1",
		"a/b.init.0":                                  "a/b init.0",
		"a/b.(*T":                                     "",
		"type:.eq.a/b.T":                              "",
		"go:struct {}":                                "",
		"_rt0_amd64_linux":                            "",
		".x":                                          "",
		"a.":                                          "",
		"":                                            "",
	} {
		got, ok := parseName([]byte(name))
		if text := got.Package + " " + got.Name; ok != (want != "") || ok && text != want {
			t.Errorf("%q: %q, %t, want %q", name, text, ok, want)
		}
	}
}

// TestSelf: this test is itself a Go program.
func TestSelf(t *testing.T) {
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := list(t, data)
	if err != nil || !slices.Contains(got, "runtime main") ||
		!slices.Contains(got, "github.com/buildyard/buildyard/internal/scan/reach/gosymbols Each") {
		t.Errorf("%d functions, %v", len(got), err)
	}
}

func FuzzEach(f *testing.F) {
	f.Add(program(f, ".gopclntab", table(binary.LittleEndian, magic120, 8, someNames)))
	f.Add(program(f, ".rodata", table(binary.BigEndian, magic118, 4, someNames)))
	f.Add(compressed(f))
	f.Add([]byte("MZ" + strings.Repeat("\x00", 600)))
	f.Add([]byte("\xcf\xfa\xed\xfe" + strings.Repeat("\x01", 600)))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := 0
		_ = Each(t.Context(), bytes.NewReader(data), func(fn Function) {
			if fn.Package == "" || fn.Name == "" {
				t.Errorf("%+v", fn)
			}
			n++
		})
		if n > len(data) {
			t.Errorf("%d functions in %d bytes", n, len(data))
		}
	})
}

func FuzzName(f *testing.F) {
	f.Add("a/b.(*Map[go.shape.struct { X a/c.T }]).Get")
	f.Add("gopkg.in/yaml%2ev3.Unmarshal")
	f.Fuzz(func(_ *testing.T, name string) { parseName([]byte(name)) })
}
