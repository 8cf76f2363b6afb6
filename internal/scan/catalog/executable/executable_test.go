package executable

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

var all = []catalog.Extractor{Programs{}}

// rustProgram returns the smallest ELF file with a list of crates.
func rustProgram(t testing.TB, list string) string {
	t.Helper()
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	if _, err := z.Write([]byte(list)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	const names = "\x00.dep-v0\x00.shstrtab\x00"
	head := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64),
		Version: 1,
		Ehsize:  64, Shentsize: 64, Shnum: 3, Shstrndx: 2,
	}
	data := uint64(64)
	strs := data + uint64(packed.Len())
	head.Shoff = strs + uint64(len(names))
	var out bytes.Buffer
	for _, part := range []any{
		head, packed.Bytes(), []byte(names),
		elf.Section64{},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: data, Size: uint64(packed.Len())},
		elf.Section64{Name: 9, Type: uint32(elf.SHT_STRTAB), Off: strs, Size: uint64(len(names))},
	} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return out.String() + strings.Repeat("\x00", 512)
}

const crateList = `{"packages":[{"name":"time","version":"0.1.42","source":"registry"},{"name":"cc","version":"1.0.0","source":"registry","kind":"build"},` +
	`{"name":"own","version":"0.1.0","source":"local"},{"name":"rg","version":"14.0.0","source":"local","root":true}]}`

func TestRust(t *testing.T) {
	catalogtest.Expect(t, all, catalogtest.Files{
		"usr/bin/rg":     rustProgram(t, crateList),
		"usr/bin/broken": rustProgram(t, "{"),
		"usr/bin/script": "#!/bin/sh\n" + strings.Repeat("x", 600),
		"usr/bin/short":  "\x7fELF",
		"usr/bin/java":   "\xca\xfe\xba\xbe\x00\x00\x00\x34" + strings.Repeat("x", 600),
		"usr/bin/fat":    "\xca\xfe\xba\xbe\x00\x00\x00\x02" + strings.Repeat("x", 600),
		"usr/bin/mz":     "MZ" + strings.Repeat("x", 600),
	},
		"rust time 0.1.42 /usr/bin/rg", "rust own 0.1.0 /usr/bin/rg (replaced)", "rust rg 14.0.0 /usr/bin/rg",
		"! /usr/bin/broken: program: read the list of Rust crates: unexpected end of JSON input",
	)
}

// This test binary is itself a Go program.
func TestGo(t *testing.T) {
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := catalog.Scan(t.Context(),
		fstest.MapFS{"usr/local/bin/self": {Data: data, Mode: 0o755}, "data/self.txt": {Data: data, Mode: 0o755}},
		catalog.Options{Extractors: all})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, p := range r.Packages {
		names = append(names, p.Name)
		if p.Name == "stdlib" && !strings.HasPrefix(p.Version, "1.") ||
			!slices.Equal(p.Locations, []string{"/usr/local/bin/self"}) {
			t.Errorf("found %+v", p)
		}
	}
	if !slices.Contains(names, "stdlib") || !slices.Contains(names, "github.com/buildyard/buildyard") {
		t.Errorf("found only %q", names)
	}
	if r.BytesRead > int64(len(data))/2 {
		t.Errorf("%d of %d bytes were read", r.BytesRead, len(data))
	}
}

func FuzzPrograms(f *testing.F) {
	f.Add([]byte(rustProgram(f, crateList)))
	f.Add([]byte("\xca\xfe\xba\xbe\x00\x00\x00\x01" + strings.Repeat("\x00", 600)))
	f.Add([]byte("\xcf\xfa\xed\xfe" + strings.Repeat("\x01", 600)))
	f.Add([]byte("MZ" + strings.Repeat("\x00", 600)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := catalog.Scan(t.Context(), fstest.MapFS{"x": {Data: data, Mode: 0o755}},
			catalog.Options{Extractors: all, Workers: 1}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestStandardLibrary: every program has one, also that of a Go between two releases.
func TestStandardLibrary(t *testing.T) {
	for built, want := range map[string]string{
		"go1.26.3":                      "1.26.3",
		"go1.26.3 X:nocoverageredesign": "1.26.3",
		"devel go1.27-0c9bd2e Mon Aug":  "(devel)",
		"devel +0c9bd2e":                "(devel)",
	} {
		list := GoProgram{Info: &debug.BuildInfo{GoVersion: built}}.Modules()
		if len(list) != 1 || list[0].Package.Name != Stdlib || list[0].Package.Version != want {
			t.Errorf("%s: %+v", built, list)
		}
	}
	if list := (GoProgram{Info: &debug.BuildInfo{}}).Modules(); len(list) != 0 {
		t.Errorf("without a version: %+v", list)
	}
}
