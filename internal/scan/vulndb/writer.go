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
)

const (
	maxTexts     = 1 << 16 // texts that records share
	sharedLength = 256     // longer texts are stored in their records
)

// Limits of the file; match ErrRecord with errors.Is, after which the writer continues.
var (
	ErrRecord = errors.New("the record cannot be kept")
	errOrder  = errors.New("records are not in order")
)

// Writer writes a database. The records are added section by section - vulnerabilities,
// applicabilities, advisories - each in the order of its key, and Close ends the file. The same
// records produce the same bytes.
type Writer struct {
	out    io.WriteSeeker
	buf    *bufio.Writer
	at     int64
	texts  map[string]uint64 // text -> its number
	list   []string
	dir    directory
	now    int // index into sectionOrder
	levels []*level
	last   []byte
	count  int
	begin  int64
	enc    encoder
	err    error
}

// level is one level of the tree that is being written.
type level struct {
	block
	first []byte // key of its block
}

// NewWriter begins a database in out, which is empty.
func NewWriter(out io.WriteSeeker, built time.Time) (*Writer, error) {
	w := &Writer{
		out: out, buf: bufio.NewWriterSize(out, 256<<10), texts: map[string]uint64{},
		dir: directory{Built: built.UTC().Truncate(time.Second), Sections: map[sectionName]sectionEntry{}},
	}
	w.write(make([]byte, headerSize))
	w.begin = w.at
	return w, w.err
}

// Vulnerability adds a vulnerability; calls are in the order of IDs.
func (w *Writer) Vulnerability(v Vulnerability) error {
	w.enc.b = w.enc.b[:0]
	w.enc.vulnerability(w.intern, v)
	return w.add(vulnerabilitySection, []byte(v.ID), w.enc.b)
}

// Applicability adds a configuration under one of its products; calls are in the order of vendor,
// product, CVE and number.
func (w *Writer) Applicability(key ApplicabilityKey, a Applicability) error {
	w.enc.b = w.enc.b[:0]
	vendor, product := ProductKey(key.Vendor), ProductKey(key.Product)
	if strings.Contains(vendor+product+a.ID, "\x00") {
		return fmt.Errorf("%w: a zero byte is in its key", ErrRecord)
	}
	w.enc.applicability(w.intern, a, cpeSeed(vendor, product))
	k := append(applicabilityPrefix(vendor, product), a.ID...)
	k = binary.BigEndian.AppendUint32(append(k, 0), key.Number)
	return w.add(applicabilitySection, k, w.enc.b)
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
		return fmt.Errorf("%w: a zero byte is in its key", ErrRecord)
	}
	w.enc.b = w.enc.b[:0]
	w.enc.advisory(w.intern, a)
	return w.add(advisorySection, AdvisoryKey(a), w.enc.b)
}

// Close ends the file with the metadata of its sources. It does not close out.
func (w *Writer) Close(sources []SourceInfo) error {
	for i, s := range w.list {
		if err := w.add(stringSection, binary.BigEndian.AppendUint32(nil, uint32(i+1)), []byte(s)); err != nil {
			return err
		}
	}
	w.finishSection()
	w.dir.Sources = slices.Clone(sources)
	slices.SortFunc(w.dir.Sources, func(a, b SourceInfo) int { return strings.Compare(a.Name, b.Name) })
	b, err := json.Marshal(w.dir)
	if err != nil {
		return err
	}
	if len(b) > directoryLimit {
		return errors.New("the sources of the database have too long names")
	}
	h := header{directory: w.at, length: uint32(len(b)), sum: crc32.Checksum(b, castagnoli)}
	w.write(b)
	h.size = w.at
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
	if n, ok := w.texts[s]; ok {
		return n
	}
	if len(w.list) >= maxTexts || len(s) > sharedLength {
		return 0
	}
	w.list = append(w.list, s)
	w.texts[s] = uint64(len(w.list))
	return uint64(len(w.list))
}

func (w *Writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.buf.Write(b)
		w.at += int64(len(b))
	}
}

// add puts an entry into the tree of a section, which begins when the one before it ends.
func (w *Writer) add(name sectionName, key, value []byte) error {
	if len(key) == 0 || len(key) > keyLimit || len(value) > entryLimit {
		return fmt.Errorf("%w: it has a key of %d and %d bytes", ErrRecord, len(key), len(value))
	}
	for sectionOrder[w.now] != name {
		if w.now == len(sectionOrder)-1 || slices.Index(sectionOrder, name) < w.now {
			return fmt.Errorf("%w: %s after %s", errOrder, name, sectionOrder[w.now])
		}
		w.finishSection()
		w.now++
	}
	if w.count > 0 && string(key) <= string(w.last) {
		return fmt.Errorf("%w: %q after %q", errOrder, key, w.last)
	}
	w.put(0, key, value)
	w.last = append(w.last[:0], key...)
	w.count++
	return w.err
}

// put adds an entry on a level.
func (w *Writer) put(n int, key, value []byte) {
	w.room(n, len(key)+len(value))
	if n == len(w.levels) {
		w.levels = append(w.levels, &level{block: block{level: n}})
	}
	l := w.levels[n]
	if l.count == 0 {
		l.first = append(l.first[:0], key...)
	}
	l.add(key, value)
}

// room closes the block of a level when size more bytes do not fit.
func (w *Writer) room(n, size int) {
	if n < len(w.levels) && w.levels[n].count > 0 && len(w.levels[n].entries)+size > blockSize {
		w.closeBlock(n)
	}
}

// closeBlock writes the block of a level, and adds it to the level above. A full block above is
// closed first, so that it follows only its own children.
func (w *Writer) closeBlock(n int) blockHandle {
	l := w.levels[n]
	w.room(n+1, len(l.first)+2*binary.MaxVarintLen64)
	p := blockHandle{at: w.at}
	b := l.seal()
	p.length = int64(len(b))
	w.write(b)
	w.put(n+1, l.first, p.marshal())
	return p
}

// finishSection closes the blocks of every level; the last is the root.
func (w *Writer) finishSection() {
	s := sectionEntry{Begin: w.begin, Entries: w.count}
	for n := 0; n < len(w.levels); n++ {
		l := w.levels[n]
		if n > 0 && n == len(w.levels)-1 && l.count == 1 {
			break // it names only the block below it, which is the root
		}
		p := w.closeBlock(n)
		s.Root, s.Length = p.at, p.length
	}
	w.dir.Sections[sectionOrder[w.now]] = s
	w.levels, w.last, w.count, w.begin = nil, w.last[:0], 0, w.at
}
