package executable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// Limits on the headers of a program. Those of the largest programs reach a tenth of them.
const (
	maxOpenBytes     = 16 << 20 // bytes that the standard library reads of the headers
	smallOpenBytes   = 2 << 20  // of these, at any time: more only while no other large file is read
	maxInfoBytes     = 8 << 20  // bytes that it reads of Go's build information, after the headers
	maxCommandBytes  = 4 << 20  // bytes of the load commands of a Mach-O file
	maxSections      = 100_000  // of an ELF file
	maxSectionNames  = 4 << 20  // bytes of their names in the file, and of all names as texts
	maxSectionName   = 4 << 10  // bytes of one name
	universalMachine = 20       // bytes of an entry of a universal program
)

// errHeadersTooLarge reports headers that would take too much memory.
var errHeadersTooLarge = fmt.Errorf("%w: the headers of the program are too large", catalog.ErrTooLarge)

// guardedReader is a program as the standard library sees it. Its readers take whatever memory a program states:
// every symbol, relocation and section has a copy of its name, and all of them may be the same large part of the
// file. What is not needed here is replaced, so that it is not read, and the number of bytes read is limited.
type guardedReader struct {
	io.ReaderAt
	size      int64        // of the file
	reserve   func() error // is called before more than smallOpenBytes are read
	bytesRead int64
	bytesLeft int64
	patchAt   int64
	patch     []byte // replaces the bytes at patchAt
	exceeded  bool
}

func (g *guardedReader) ReadAt(p []byte, off int64) (int, error) {
	if g.bytesLeft -= int64(len(p)); g.bytesLeft < 0 {
		g.exceeded = true
		return 0, errHeadersTooLarge
	}
	if err := g.count(int64(len(p))); err != nil {
		return 0, err
	}
	n, err := g.ReaderAt.ReadAt(p, off)
	if from, to := max(off, g.patchAt), min(off+int64(n), g.patchAt+int64(len(g.patch))); from < to {
		copy(p[from-off:to-off], g.patch[from-g.patchAt:])
	}
	return n, err
}

// count counts bytes that are read.
func (g *guardedReader) count(n int64) error {
	if g.bytesRead += n; g.bytesRead <= smallOpenBytes {
		return nil
	}
	return g.reserve()
}

// guard returns the reader of a program for the standard library.
func guard(r io.ReaderAt, size int64, reserve func() error) *guardedReader {
	return &guardedReader{ReaderAt: r, size: size, reserve: reserve, bytesLeft: maxOpenBytes}
}

// errOutside reports headers that state more than the file has, as those of other data may.
var errOutside = errors.New("headers are outside of the file")

// checkPart refuses a part of the headers that is outside of the file, or larger than a limit.
func (g *guardedReader) checkPart(off, n uint64, limit int64) error {
	switch {
	case off > uint64(g.size) || n > uint64(g.size)-off:
		return errOutside
	case n > uint64(limit):
		return errHeadersTooLarge
	}
	return nil
}

// readPart reads bytes of a program, fewer at its end.
func (g *guardedReader) readPart(off, n int64) ([]byte, error) {
	if err := g.count(n); err != nil {
		return nil, err
	}
	data := make([]byte, n)
	read, err := g.ReaderAt.ReadAt(data, off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:read], err
}

// openError returns the error of the standard library, or that the headers are too large.
func (g *guardedReader) openError(err error) error {
	if g.exceeded {
		return errHeadersTooLarge
	}
	return err
}

// Commands of a Mach-O file, and the fields of those with sections.
const (
	commandSegment   = 0x1
	commandSymbols   = 0x2
	commandDynSyms   = 0xb
	commandSegment64 = 0x19
	commandNote      = 0x31 // in place of what is hidden: the standard library does not read it
)

// segmentLayout has the offsets in a command with sections.
type segmentLayout struct{ count, first, size, relocations int }

var segmentLayouts = map[uint32]segmentLayout{
	commandSegment:   {count: 48, first: 56, size: 68, relocations: 52},
	commandSegment64: {count: 64, first: 72, size: 80, relocations: 60},
}

// hideMachO hides the symbols and relocations of a Mach-O file.
func (g *guardedReader) hideMachO() error {
	head, err := g.readPart(0, 32)
	if err != nil || len(head) < 32 {
		return orUnexpectedEOF(err)
	}
	order, at := binary.ByteOrder(binary.LittleEndian), int64(28)
	if head[0] == 0xfe {
		order = binary.BigEndian
	}
	if order.Uint32(head) == 0xfeedfacf {
		at = 32
	}
	size := int64(order.Uint32(head[20:]))
	if err := g.checkPart(uint64(at), uint64(size), maxCommandBytes); err != nil {
		return err
	}
	data, err := g.readPart(at, size)
	if err != nil {
		return err
	}
	g.patchAt, g.patch = at, data
	for len(data) >= 8 {
		command, n := order.Uint32(data), order.Uint32(data[4:])
		if n < 8 || uint64(n) > uint64(len(data)) {
			return nil // the standard library refuses it
		}
		switch layout, ok := segmentLayouts[command]; {
		case command == commandSymbols || command == commandDynSyms:
			order.PutUint32(data, commandNote)
		case ok:
			hideRelocations(data[:n], layout, order)
		}
		data = data[n:]
	}
	return nil
}

func hideRelocations(command []byte, l segmentLayout, order binary.ByteOrder) {
	if len(command) < l.first {
		return
	}
	count := order.Uint32(command[l.count:])
	for sections := command[l.first:]; count > 0 && len(sections) >= l.size; count-- {
		order.PutUint32(sections[l.relocations:], 0)
		sections = sections[l.size:]
	}
}

// Offsets in the headers of a PE file.
const (
	peHeaderPointer = 0x3c
	peSections      = 6 // after the header begins
	peSymbols       = 12
	peOptionalSize  = 20
	peFirstOptional = 24
	peSectionSize   = 40
	peRelocations   = 32 // in a section
)

// hidePE hides the symbols, relocations and long section names of a PE file.
func (g *guardedReader) hidePE() error {
	var pointer [4]byte
	if _, err := g.ReaderAt.ReadAt(pointer[:], peHeaderPointer); err != nil {
		return err
	}
	at := int64(binary.LittleEndian.Uint32(pointer[:]))
	head, err := g.readPart(at, peFirstOptional)
	if err != nil || len(head) < peFirstOptional {
		return orUnexpectedEOF(err)
	}
	sections := int64(binary.LittleEndian.Uint16(head[peSections:]))
	first := peFirstOptional + int64(binary.LittleEndian.Uint16(head[peOptionalSize:]))
	data, err := g.readPart(at, first+sections*peSectionSize)
	if err != nil || int64(len(data)) < first {
		return orUnexpectedEOF(err)
	}
	clear(data[peSymbols : peSymbols+8])
	for s := data[first:]; len(s) >= peSectionSize; s = s[peSectionSize:] {
		if s[0] == '/' { // the offset of the name in a table that is hidden, too
			s[0] = '_'
		}
		clear(s[peRelocations : peRelocations+2])
	}
	g.patchAt, g.patch = at, data
	return nil
}

// orUnexpectedEOF returns an error for headers that end too early.
func orUnexpectedEOF(err error) error {
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// elfLayout has the offsets and sizes in the headers of an ELF file of 32 or 64 bits.
type elfLayout struct{ headerSize, sectionsAt, entrySize, entries, nameIndex, sectionAt, sectionSize, minEntry int }

var elfLayouts = map[byte]elfLayout{
	1: {
		headerSize: 52, sectionsAt: 32, entrySize: 46, entries: 48, nameIndex: 50, sectionAt: 16, sectionSize: 20,
		minEntry: 40,
	},
	2: {
		headerSize: 64, sectionsAt: 40, entrySize: 58, entries: 60, nameIndex: 62, sectionAt: 24, sectionSize: 32,
		minEntry: 64,
	},
}

// checkELF refuses an ELF file whose section names take too much memory.
func (g *guardedReader) checkELF() error {
	head, err := g.readPart(0, 64)
	if err != nil || len(head) < 64 {
		return orUnexpectedEOF(err)
	}
	l, ok := elfLayouts[head[4]]
	order := map[byte]binary.ByteOrder{1: binary.LittleEndian, 2: binary.BigEndian}[head[5]]
	if !ok || order == nil {
		return nil // the standard library refuses it
	}
	word := func(data []byte, at int) uint64 {
		if l.minEntry == 40 {
			return uint64(order.Uint32(data[at:]))
		}
		return order.Uint64(data[at:])
	}
	offset := word(head, l.sectionsAt)
	size, count := int(order.Uint16(head[l.entrySize:])), uint64(order.Uint16(head[l.entries:]))
	names := uint64(order.Uint16(head[l.nameIndex:]))
	if offset == 0 || size < l.minEntry || offset > 1<<62 {
		return nil // it has no sections
	}
	first, err := g.readPart(int64(offset), int64(size))
	if err != nil || len(first) < size {
		return orUnexpectedEOF(err)
	}
	if count == 0 { // there are more than fit in the header
		count = word(first, l.sectionSize)
	}
	if names == 0xffff {
		names = uint64(order.Uint32(first[l.sectionSize+map[int]int{40: 4, 64: 8}[l.minEntry]:]))
	}
	if count > uint64(g.size) { // each has several bytes
		return errOutside
	}
	if err := g.checkPart(offset, count*uint64(size), maxSections*int64(size)); err != nil {
		return err
	}
	table, err := g.readPart(int64(offset), int64(count)*int64(size))
	if err != nil || names >= uint64(len(table)/size) {
		return err
	}
	named := table[names*uint64(size):]
	if err := g.checkPart(word(named, l.sectionAt), word(named, l.sectionSize), maxSectionNames); err != nil {
		return err
	}
	texts, err := g.readPart(int64(word(named, l.sectionAt)), int64(word(named, l.sectionSize)))
	if err != nil {
		return err
	}
	total := 0
	for ; len(table) >= size; table = table[size:] {
		start := uint64(order.Uint32(table))
		if start >= uint64(len(texts)) {
			continue
		}
		rest := texts[start:min(start+maxSectionName, uint64(len(texts)))]
		n := bytes.IndexByte(rest, 0)
		if n < 0 {
			n = len(rest)
		}
		if total += n; n == maxSectionName || total > maxSectionNames {
			return errHeadersTooLarge
		}
	}
	return nil
}
