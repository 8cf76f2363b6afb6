package gosymbols

import (
	"bytes"
	"context"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits on what is read.
const (
	maxTableBytes  = 256 << 20 // of names; programs of 100 MB have some 5 MB
	maxSearchBytes = 1 << 30   // of sections in which the table is searched
	chunkBytes     = 256 << 10
	maxTables      = 8 // found by a search
)

// Errors of programs whose functions cannot be listed; match them with errors.Is.
var (
	ErrNoTable   = errors.New("the program has no table of functions that can be read")
	ErrAmbiguous = errors.New("the program has several tables of functions")
	ErrDamaged   = errors.New("the table of functions is damaged")
)

// The header of the table (pcHeader of Go's package runtime) begins with a number for its version. Since Go 1.18 it is
// followed by the sizes of an instruction and of a pointer, and by eight words: the number of functions, that of
// files, one without a use here, and the offsets of the names and of the four tables after them.
const (
	magic118 = 0xfffffff0 // Go 1.18 and 1.19
	magic120 = 0xfffffff1 // since Go 1.20

	headerWords   = 8
	minHeaderSize = 8 + headerWords*4
	maxHeaderSize = 8 + headerWords*8
)

// location is a part of a program in which a table is, or is to be searched.
type location struct {
	r      io.ReaderAt // of the section
	size   int64
	offset int64 // of the table; -1 is unknown
}

// openNames returns the names of a program's functions, each with a zero byte after it.
func openNames(ctx context.Context, r io.ReaderAt) (*io.SectionReader, error) {
	places, err := locate(r)
	if err != nil {
		return nil, err
	}
	var found []*io.SectionReader
	for _, l := range places {
		if l.offset >= 0 {
			return readHeader(l.r, l.size, l.offset)
		}
		tables, err := l.search(ctx)
		if err != nil {
			return nil, err
		}
		found = append(found, tables...)
	}
	switch len(found) {
	case 0:
		return nil, ErrNoTable
	case 1:
		return found[0], nil
	default: // another program is embedded
		return nil, ErrAmbiguous
	}
}

// locate finds where the table of a program may be.
func locate(r io.ReaderAt) ([]location, error) {
	var magic [4]byte
	if _, err := r.ReadAt(magic[:], 0); err != nil {
		return nil, err
	}
	switch m := string(magic[:]); {
	case m == "\x7fELF":
		return locateELF(r)
	case m[:2] == "MZ":
		return locatePE(r)
	default:
		return locateMachO(r)
	}
}

func locateELF(r io.ReaderAt) ([]location, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		// No linker compresses it, since the program reads it as it is. A compressed section has no ReaderAt.
		if s := f.Section(name); s != nil && s.Type != elf.SHT_NOBITS && s.Flags&elf.SHF_COMPRESSED == 0 {
			return []location{{r: s.ReaderAt, size: int64(s.FileSize)}}, nil
		}
	}
	var out []location // linked by another linker, or without sections
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Filesz > 0 && p.Flags&elf.PF_X == 0 {
			out = append(out, location{r: p.ReaderAt, size: int64(p.Filesz), offset: -1})
		}
	}
	return out, nil
}

func locateMachO(r io.ReaderAt) ([]location, error) {
	f, err := macho.NewFile(r)
	if err != nil {
		return nil, err
	}
	if s := f.Section("__gopclntab"); s != nil {
		return []location{{r: s.ReaderAt, size: int64(s.Size)}}, nil
	}
	return nil, nil
}

// locatePE finds the table by its symbol, which stripped programs do not have.
func locatePE(r io.ReaderAt) ([]location, error) {
	f, err := pe.NewFile(r)
	if err != nil {
		return nil, err
	}
	for _, s := range f.Symbols {
		if s.Name != "runtime.pclntab" || s.SectionNumber < 1 || int(s.SectionNumber) > len(f.Sections) {
			continue
		}
		section := f.Sections[s.SectionNumber-1]
		return []location{{r: section.ReaderAt, size: int64(section.Size), offset: int64(s.Value)}}, nil
	}
	var out []location
	for _, s := range f.Sections {
		if s.Characteristics&pe.IMAGE_SCN_CNT_INITIALIZED_DATA != 0 {
			out = append(out, location{r: s.ReaderAt, size: int64(s.Size), offset: -1})
		}
	}
	return out, nil
}

// search finds the tables of a section.
func (l location) search(ctx context.Context) ([]*io.SectionReader, error) {
	var out []*io.SectionReader
	buf := make([]byte, chunkBytes)
	const step = chunkBytes - minHeaderSize // headers are aligned, and chunks overlap
	for from := int64(0); from < min(l.size, maxSearchBytes); from += step {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := l.r.ReadAt(buf, from)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		for _, at := range headersIn(buf[:n], step) {
			if t, err := readHeader(l.r, l.size, from+int64(at)); err == nil {
				out = append(out, t)
			}
		}
		if len(out) > maxTables || n < len(buf) {
			break
		}
	}
	return out, nil
}

// headersIn returns the offsets below limit at which a header may begin.
func headersIn(b []byte, limit int) (out []int) {
	for _, pattern := range [][]byte{
		{0xf0, 0xff, 0xff, 0xff, 0, 0},
		{0xf1, 0xff, 0xff, 0xff, 0, 0},
		{0xff, 0xff, 0xff, 0xf0, 0, 0},
		{0xff, 0xff, 0xff, 0xf1, 0, 0},
	} {
		rest := b[:min(len(b), limit+len(pattern)-1)]
		for from := 0; ; from++ {
			i := bytes.Index(rest[from:], pattern)
			if i < 0 {
				break
			}
			from += i
			out = append(out, from)
		}
	}
	return out
}

// readHeader reads the header of a table at an offset of its section, and returns the names.
func readHeader(r io.ReaderAt, size, offset int64) (*io.SectionReader, error) {
	var b [maxHeaderSize]byte
	if offset < 0 || offset > size-minHeaderSize {
		return nil, fmt.Errorf("%w: it is outside of its section", ErrDamaged)
	}
	n, err := r.ReadAt(b[:min(maxHeaderSize, size-offset)], offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var order binary.ByteOrder = binary.LittleEndian
	if b[0] == 0xff {
		order = binary.BigEndian
	}
	version, word := order.Uint32(b[:]), int(b[7])
	switch {
	case version != magic118 && version != magic120:
		return nil, fmt.Errorf("%w: its version %#x is not known", ErrNoTable, version)
	case b[4] != 0 || b[5] != 0 || b[6] != 1 && b[6] != 2 && b[6] != 4 || word != 4 && word != 8:
		return nil, fmt.Errorf("%w: its header is invalid", ErrDamaged)
	case n < 8+headerWords*word:
		return nil, fmt.Errorf("%w: its header is cut off", ErrDamaged)
	}
	var words [headerWords]uint64
	for i := range words {
		if word == 4 {
			words[i] = uint64(order.Uint32(b[8+4*i:]))
		} else {
			words[i] = order.Uint64(b[8+8*i:])
		}
	}
	functions, names := words[0], words[3]
	last := uint64(size - offset)
	for _, next := range words[4:] { // the tables follow each other
		if next < names || next > last {
			return nil, fmt.Errorf("%w: its parts are outside of it", ErrDamaged)
		}
	}
	end := words[4]
	if functions == 0 || names < uint64(8+headerWords*word) || end-names < functions || end-names > maxTableBytes {
		return nil, fmt.Errorf("%w: %d functions have %d bytes of names", ErrDamaged, functions, end-names)
	}
	return io.NewSectionReader(r, offset+int64(names), int64(end-names)), nil
}
