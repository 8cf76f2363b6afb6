package executable

import (
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// layout returns the bytes of values one after the other.
func layout(t testing.TB, order binary.ByteOrder, parts ...any) string {
	t.Helper()
	var out strings.Builder
	for _, p := range parts {
		if text, ok := p.(string); ok {
			out.WriteString(text)
			continue
		}
		if err := binary.Write(&out, order, p); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// longText is part of the bombs: a name of a megabyte, which every section or symbol has.
var longText = strings.Repeat("x", 1<<20)

// sectionBomb is an ELF file whose sections all have one long name: 10,000 times a megabyte.
func sectionBomb(t testing.TB, count, stated int, names string) string {
	head := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64),
		Version: 1, Ehsize: 64, Shentsize: 64, Shoff: 64, Shnum: uint16(stated),
	}
	sections := make([]elf.Section64, count)
	for i := range sections {
		sections[i] = elf.Section64{Type: uint32(elf.SHT_PROGBITS), Off: 1, Size: 1}
	}
	sections[0] = elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: uint64(64 + 64*count), Size: uint64(len(names))}
	if stated == 0 {
		sections[0].Size = uint64(count)
	}
	return layout(t, binary.LittleEndian, head, sections, names)
}

// symbolBomb is a Mach-O file whose symbols all have one long name.
func symbolBomb(t testing.TB, count int) string {
	const header, command = 32, 24
	symbols := make([]macho.Nlist64, count)
	for i := range symbols {
		symbols[i].Name = 1
	}
	return layout(t, binary.LittleEndian,
		macho.FileHeader{Magic: macho.Magic64, Cpu: macho.CpuAmd64, Type: macho.TypeExec, Ncmd: 1, Cmdsz: command},
		uint32(0), macho.SymtabCmd{
			Cmd: macho.LoadCmdSymtab, Len: command, Symoff: header + command, Nsyms: uint32(count),
			Stroff: uint32(header + command + 16*count), Strsize: uint32(len(longText) + 1),
		}, symbols, "\x00", longText)
}

// coffBomb is a PE file whose sections all have one long name, and whose symbols, too.
func coffBomb(t testing.TB, count int) string {
	var dos [64]byte
	copy(dos[:], "MZ")
	dos[0x3c] = 64
	symbols := make([]pe.COFFSymbol, count)
	for i := range symbols {
		symbols[i].Name[4] = 4
	}
	sections := make([]pe.SectionHeader32, count)
	for i := range sections {
		sections[i] = pe.SectionHeader32{Name: [8]byte{'/', '4'}, NumberOfRelocations: 0xffff}
	}
	at := 64 + 24 + 40*count
	return layout(t, binary.LittleEndian, dos, "PE\x00\x00", pe.FileHeader{
		Machine: pe.IMAGE_FILE_MACHINE_AMD64, NumberOfSections: uint16(count), PointerToSymbolTable: uint32(at),
		NumberOfSymbols: uint32(count),
	}, sections, symbols, uint32(len(longText)+4), longText)
}

// TestBombs: headers that would take gigabytes are refused, or not read.
func TestBombs(t *testing.T) {
	const count = 10_000
	symbols := symbolBomb(t, count)
	for name, c := range map[string]struct {
		data     string
		tooLarge bool
	}{
		"section names":   {sectionBomb(t, count, count, longText), true},
		"extended count":  {sectionBomb(t, 1<<16, 0, longText), true},
		"many sections":   {sectionBomb(t, maxSections+1, 0, "\x00"), true},
		"long name table": {sectionBomb(t, 2, 2, strings.Repeat("\x00", maxSectionNames+1)), true},
		"usual names":     {sectionBomb(t, count, count, "\x00.text\x00"), false},
		"Mach-O symbols":  {symbols, false},
		"PE":              {coffBomb(t, count), false},
		"load commands": {
			"\xcf\xfa\xed\xfe" + strings.Repeat("\x00", 16) + "\x01\x00\x80\x00" + strings.Repeat("\x00", 9<<20), true,
		},
		"universal symbols": {layout(t, binary.BigEndian, uint32(0xcafebabe), uint32(1),
			[5]uint32{7, 3, 28, uint32(len(symbols)), 0}, symbols), false},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := catalog.Scan(t.Context(), fstest.MapFS{"x": {Data: []byte(c.data), Mode: 0o755}},
			catalog.Options{Extractors: all, Workers: 1})
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		tooLarge := len(r.Warnings) == 1 && !r.Warnings[0].InvalidContent
		if tooLarge != c.tooLarge || len(r.Packages) > 0 || !c.tooLarge && len(r.Warnings) > 0 {
			t.Errorf("%s: %v, %v", name, r.Packages, r.Warnings)
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 64<<20 {
			t.Errorf("%s: %d bytes of memory", name, taken)
		}
	}
}

// TestGuardKeepsPrograms: the standard library finds the same sections in a program with and without the guard.
func TestGuardKeepsPrograms(t *testing.T) {
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := elf.NewFile(f)
	if err != nil {
		t.Skip("this program is not an ELF file")
	}
	g := guard(f, st.Size(), func() error { return nil })
	if err := g.checkELF(); err != nil {
		t.Fatal(err)
	}
	guarded, err := elf.NewFile(g)
	if err != nil || len(guarded.Sections) != len(plain.Sections) {
		t.Fatalf("%d sections, want %d: %v", len(guarded.Sections), len(plain.Sections), err)
	}
	g.bytesLeft = 10
	if _, err := elf.NewFile(g); err == nil || !errors.Is(g.openError(err), catalog.ErrTooLarge) {
		t.Errorf("beyond the limit: %v", err)
	}
}

// TestPatch: the replaced part is read at every offset.
func TestPatch(t *testing.T) {
	g := guard(strings.NewReader("0123456789"), 10, nil)
	g.patchAt, g.patch = 3, []byte("abc")
	const want = "012abc6789"
	for off := range len(want) {
		for n := 1; off+n <= len(want); n++ {
			p := make([]byte, n)
			_, err := g.ReadAt(p, int64(off))
			if err != nil && !errors.Is(err, io.EOF) || string(p) != want[off:off+n] {
				t.Errorf("at %d: %q, want %q, %v", off, p, want[off:off+n], err)
			}
		}
	}
}
