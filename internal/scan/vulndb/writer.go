package vulndb

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	maxSharedStrings     = 1 << 16 // texts that records share
	maxSharedStringBytes = 256     // longer texts are stored in their records
)

// Limits of the file; match ErrRecordLimit with errors.Is, after which the writer continues.
var (
	ErrRecordLimit = errors.New("the record cannot be stored")
	errNotSorted   = errors.New("records are not sorted")
)

// Writer writes a database. The records are added section by section - vulnerabilities,
// applicabilities, advisories, code, names of products, descriptions - each in the order of its key, and Close ends
// the file. The same records produce the same bytes.
type Writer struct {
	out           io.WriteSeeker
	buf           *bufio.Writer
	offset        int64
	stringNumbers map[string]uint64 // text -> its number
	sharedStrings []string
	directory     directory
	sectionIndex  int // index into sectionOrder
	levels        []*treeLevel
	lastKey       []byte
	entryCount    int
	sectionBegin  int64
	encoder       encoder
	compressor    *zstd.Encoder
	err           error
}

// treeLevel is one level of the tree that is being written.
type treeLevel struct {
	blockBuilder
	firstKey []byte // key of its block
}

// NewWriter begins a database in out, which is empty.
func NewWriter(out io.WriteSeeker, built time.Time) (*Writer, error) {
	z, err := newBlockEncoder()
	if err != nil {
		return nil, err
	}
	w := &Writer{
		out: out, compressor: z, buf: bufio.NewWriterSize(out, 256<<10), stringNumbers: map[string]uint64{},
		directory: directory{Built: built.UTC().Truncate(time.Second), Sections: map[sectionName]treeLocation{}},
	}
	w.write(make([]byte, headerSize))
	w.sectionBegin = w.offset
	return w, w.err
}

// Vulnerability adds a vulnerability; calls are in the order of IDs.
func (w *Writer) Vulnerability(v Vulnerability) error {
	w.encoder.buf = w.encoder.buf[:0]
	w.encoder.vulnerability(w.intern, v)
	return w.addEntry(vulnerabilitySection, []byte(v.ID), w.encoder.buf)
}

// Applicability adds a configuration under one of its products; calls are in the order of vendor,
// product, CVE and number.
func (w *Writer) Applicability(key ApplicabilityKey, a Applicability) error {
	w.encoder.buf = w.encoder.buf[:0]
	vendor, product := ProductKey(key.Vendor), ProductKey(key.Product)
	if strings.Contains(vendor+product+a.ID, "\x00") {
		return fmt.Errorf("%w: its key has a zero byte", ErrRecordLimit)
	}
	w.encoder.applicability(w.intern, a, cpePrefix(vendor, product))
	k := append(applicabilityPrefix(vendor, product), a.ID...)
	k = binary.BigEndian.AppendUint32(append(k, 0), key.Number)
	return w.addEntry(applicabilitySection, k, w.encoder.buf)
}

// ApplicabilityKey is the key of a configuration.
type ApplicabilityKey struct {
	Vendor, Product string
	Number          uint32 // distinguishes those of one CVE
}

// AdvisoryKey returns the sort key of advisories: ecosystem, name, ID and source.
func AdvisoryKey(a Advisory) []byte {
	k := append(advisoryPrefix(a.Ecosystem, a.Name), a.ID...)
	return append(append(k, 0), a.Source...)
}

// Advisory adds an advisory; calls are in the order of AdvisoryKey.
func (w *Writer) Advisory(a Advisory) error {
	if strings.Contains(string(a.Ecosystem)+a.Name+a.ID, "\x00") {
		return fmt.Errorf("%w: its key has a zero byte", ErrRecordLimit)
	}
	w.encoder.buf = w.encoder.buf[:0]
	w.encoder.advisory(w.intern, a)
	return w.addEntry(advisorySection, AdvisoryKey(a), w.encoder.buf)
}

// Close ends the file with the metadata of its sources. It does not close out.
func (w *Writer) Close(sources []SourceInfo) error {
	for i, s := range w.sharedStrings {
		if err := w.addEntry(stringSection, binary.BigEndian.AppendUint32(nil, uint32(i+1)), []byte(s)); err != nil {
			return err
		}
	}
	w.finishSection()
	w.directory.Sources = slices.Clone(sources)
	slices.SortFunc(w.directory.Sources, func(a, b SourceInfo) int { return strings.Compare(a.Name, b.Name) })
	b, err := json.Marshal(w.directory)
	if err != nil {
		return err
	}
	if len(b) > maxDirectoryBytes {
		return fmt.Errorf(
			"the directory of the database has %d bytes, more than %d: give fewer sources, or shorter names",
			len(b), maxDirectoryBytes)
	}
	h := header{
		schema: Schema, directoryOffset: w.offset, directoryLength: uint32(len(b)),
		directoryChecksum: crc32.Checksum(b, castagnoli),
	}
	w.write(b)
	h.fileSize = w.offset
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	if w.err == nil {
		_, w.err = w.out.Seek(0, io.SeekStart)
	}
	if w.err == nil {
		_, w.err = w.out.Write(h.marshal())
	}
	return w.err
}

// intern returns the number of a text that may repeat; 0 marks an inline text.
func (w *Writer) intern(s string) uint64 {
	if n, ok := w.stringNumbers[s]; ok {
		return n
	}
	if len(w.sharedStrings) >= maxSharedStrings || len(s) > maxSharedStringBytes {
		return 0
	}
	w.sharedStrings = append(w.sharedStrings, s)
	w.stringNumbers[s] = uint64(len(w.sharedStrings))
	return uint64(len(w.sharedStrings))
}

func (w *Writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.buf.Write(b)
		w.offset += int64(len(b))
	}
}

// addEntry puts an entry into the tree of a section, which begins when the one before it ends.
func (w *Writer) addEntry(name sectionName, key, value []byte) error {
	if len(key) == 0 || len(key) > maxKeyBytes || len(value) > maxEntryBytes {
		return fmt.Errorf("%w: it has a key of %d bytes and a value of %d bytes", ErrRecordLimit, len(key), len(value))
	}
	for sectionOrder[w.sectionIndex] != name {
		if w.sectionIndex == len(sectionOrder)-1 || slices.Index(sectionOrder, name) < w.sectionIndex {
			return fmt.Errorf("%w: %s after %s", errNotSorted, name, sectionOrder[w.sectionIndex])
		}
		w.finishSection()
		w.sectionIndex++
	}
	if w.entryCount > 0 && string(key) <= string(w.lastKey) {
		return fmt.Errorf("%w: %q after %q", errNotSorted, key, w.lastKey)
	}
	w.addToLevel(0, key, value)
	w.lastKey = append(w.lastKey[:0], key...)
	w.entryCount++
	return w.err
}

// addToLevel adds an entry on a level.
func (w *Writer) addToLevel(n int, key, value []byte) {
	w.closeIfFull(n, len(key)+len(value))
	if n == len(w.levels) {
		w.levels = append(w.levels, &treeLevel{blockBuilder: blockBuilder{level: n}})
	}
	l := w.levels[n]
	if l.entryCount == 0 {
		l.firstKey = append(l.firstKey[:0], key...)
	}
	l.add(key, value)
}

// closeIfFull closes the block of a level when size more bytes do not fit.
func (w *Writer) closeIfFull(n, size int) {
	target := targetBlockBytes
	if n == 0 && sectionOrder[w.sectionIndex] == descriptionSection {
		target = descriptionBlockBytes
	}
	if n < len(w.levels) && w.levels[n].entryCount > 0 && len(w.levels[n].entries)+size > target {
		w.closeBlock(n)
	}
}

// closeBlock writes the block of a level, and adds it to the level above. A full block above is
// closed first, so that it follows only its own children.
func (w *Writer) closeBlock(n int) blockHandle {
	l := w.levels[n]
	w.closeIfFull(n+1, len(l.firstKey)+2*binary.MaxVarintLen64)
	p := blockHandle{offset: w.offset}
	b := l.finish(w.compressor)
	p.length = int64(len(b))
	w.write(b)
	w.addToLevel(n+1, l.firstKey, p.marshal())
	return p
}

// finishSection closes the blocks of every level; the last is the root.
func (w *Writer) finishSection() {
	s := treeLocation{Begin: w.sectionBegin, Entries: w.entryCount}
	for n := 0; n < len(w.levels); n++ {
		l := w.levels[n]
		if n > 0 && n == len(w.levels)-1 && l.entryCount == 1 {
			break // it names only the block below it, which is the root
		}
		p := w.closeBlock(n)
		s.Root, s.Length = p.offset, p.length
	}
	w.directory.Sections[sectionOrder[w.sectionIndex]] = s
	w.levels, w.lastKey, w.entryCount, w.sectionBegin = nil, w.lastKey[:0], 0, w.offset
}
