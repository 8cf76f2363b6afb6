package etcd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
)

// errMalformed means that etcd cannot read a file as its database without harm.
var errMalformed = errors.New("the file is not an etcd database")

// The form of a bbolt file (go.etcd.io/bbolt, version 2). bbolt maps a file into memory and follows
// its references, so that a wrong number ends the process with a fault that cannot be caught. Here
// every number is checked first.
const (
	pageHeaderSize    = 16 // id, flags, count, overflow
	metaPageSize      = 64
	elementSize       = 16 // of a branch and of a leaf alike
	bucketHeaderSize  = 16 // root, sequence
	boltMagic         = 0xED0CDAED
	boltVersion       = 2
	noFreelist        = ^uint64(0)
	longFreelistCount = 0xFFFF // in a count: the first word is the count
	maxDepth          = 64     // of pages and of buckets in buckets together

	branchPage, leafPage, freePage = 1, 2, 0x10 // a page has exactly one kind, or bbolt panics

	bucketLeaf = 1 // flag of an element that is a bucket
)

// pageReader reads the pages of a database, each one time.
type pageReader struct {
	file      io.ReaderAt
	pageSize  int64 // of a page
	pageCount uint64
	usedPages map[uint64]struct{}
	visit     func(path []string, key, value []byte) error
}

// metaPage is the content of a meta page.
type metaPage struct {
	pageSize                          int64
	rootPage, freelistPage, pageCount uint64
	txnID, checksum                   uint64
}

// walkDatabase reads a database of a length and passes every pair of every bucket. Whatever the file is, it
// ends with an error or without one, after a time in proportion to its length.
func walkDatabase(file io.ReaderAt, length int64, visit func(path []string, key, value []byte) error) error {
	m, err := newestMeta(file, length)
	if err != nil {
		return err
	}
	p := &pageReader{
		file: file, pageSize: m.pageSize, pageCount: m.pageCount,
		usedPages: map[uint64]struct{}{0: {}, 1: {}}, visit: visit,
	}
	if m.freelistPage != noFreelist {
		if err := p.readFreelist(m.freelistPage); err != nil {
			return err
		}
	}
	return p.readPage(m.rootPage, nil, 0, keyRange{})
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// newestMeta reads the two meta pages; one of them may be torn.
func newestMeta(file io.ReaderAt, length int64) (best metaPage, err error) {
	head := make([]byte, pageHeaderSize+metaPageSize)
	for _, size := range []int64{0, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16} {
		_, err := file.ReadAt(head, size)
		m, ok := parseMeta(head)
		if err == nil && ok && (size == 0 || size == m.pageSize) && m.txnID >= best.txnID {
			best = m
		}
	}
	switch {
	case best.pageSize == 0:
		return best, malformed("it has no valid meta page")
	case best.pageCount < 2 || best.pageCount > uint64(length/best.pageSize):
		return best, malformed("it ends before its last page")
	}
	return best, nil
}

func parseMeta(page []byte) (m metaPage, ok bool) {
	le := binary.LittleEndian
	b := page[pageHeaderSize:]
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaPageSize-8]) // a hash never fails
	m = metaPage{
		pageSize: int64(le.Uint32(b[8:])), rootPage: le.Uint64(b[16:]), freelistPage: le.Uint64(b[32:]),
		pageCount: le.Uint64(b[40:]),
		txnID:     le.Uint64(b[48:]), checksum: le.Uint64(b[56:]),
	}
	fits := m.pageSize >= 1<<9 && m.pageSize <= 1<<16 && m.pageSize&(m.pageSize-1) == 0
	// bbolt does not check the kind of these pages either.
	return m, fits && le.Uint32(b) == boltMagic && le.Uint32(b[4:]) == boltVersion && m.checksum == sum.Sum64()
}

// loadPage reads a page with its overflow pages, and marks it as used.
func (p *pageReader) loadPage(id uint64) ([]byte, error) {
	if id < 2 || id >= p.pageCount {
		return nil, malformed("page %d of %d", id, p.pageCount)
	}
	head := make([]byte, pageHeaderSize)
	if _, err := p.file.ReadAt(head, int64(id)*p.pageSize); err != nil {
		return nil, malformed("page %d: %v", id, err)
	}
	over := uint64(binary.LittleEndian.Uint32(head[12:]))
	if binary.LittleEndian.Uint64(head) != id || over >= p.pageCount-id {
		return nil, malformed("page %d has a wrong head", id)
	}
	for i := id; i <= id+over; i++ {
		if _, twice := p.usedPages[i]; twice {
			return nil, malformed("page %d is used twice", i)
		}
		p.usedPages[i] = struct{}{}
	}
	data := make([]byte, int64(over+1)*p.pageSize)
	if _, err := p.file.ReadAt(data, int64(id)*p.pageSize); err != nil {
		return nil, malformed("page %d: %v", id, err)
	}
	return data, nil
}

// readFreelist reads the ids of the pages that are free: nothing else may use them.
func (p *pageReader) readFreelist(id uint64) error {
	data, err := p.loadPage(id)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	count, ids := uint64(le.Uint16(data[10:])), data[pageHeaderSize:]
	if count == longFreelistCount {
		count, ids = le.Uint64(ids), ids[8:]
	}
	if le.Uint16(data[8:]) != freePage || count > uint64(len(ids)/8) {
		return malformed("its list of free pages is wrong")
	}
	for ; count > 0; count, ids = count-1, ids[8:] {
		free := le.Uint64(ids)
		if _, twice := p.usedPages[free]; twice || free >= p.pageCount {
			return malformed("page %d cannot be free", free)
		}
		p.usedPages[free] = struct{}{}
	}
	return nil
}

// keyRange is the range of the keys of a page: from the first one on, before the end. A nil end is
// unbounded. bbolt panics in a concurrent goroutine that reads ahead when a key is outside.
type keyRange struct{ first, end []byte }

func (p *pageReader) readPage(id uint64, path []string, depth int, keys keyRange) error {
	data, err := p.loadPage(id)
	if err != nil {
		return err
	}
	return p.readElements(data, path, depth, keys)
}

// readElements checks the elements of a page, of the file or in a bucket that is a value.
func (p *pageReader) readElements(data []byte, path []string, depth int, keys keyRange) error {
	le := binary.LittleEndian
	flags, count := le.Uint16(data[8:]), int(le.Uint16(data[10:]))
	switch {
	case depth > maxDepth:
		return malformed("it is nested too deep")
	case flags != leafPage && (flags != branchPage || count == 0), pageHeaderSize+count*elementSize > len(data):
		return malformed("a page of %d elements and kind %d", count, flags)
	}
	all, err := parseElements(data, count, flags == leafPage)
	if err != nil {
		return err
	}
	if count > 0 && (bytes.Compare(all[0].key, keys.first) < 0 ||
		keys.end != nil && bytes.Compare(all[count-1].key, keys.end) >= 0) {
		return malformed("keys on a page that is not theirs")
	}
	for i, e := range all {
		switch {
		case flags == branchPage:
			within := keyRange{first: e.key, end: keys.end}
			if i+1 < count {
				within.end = all[i+1].key
			}
			err = p.readPage(e.childPage, path, depth+1, within)
		case e.flags&bucketLeaf != 0:
			err = p.readBucket(append(slices.Clip(path), string(e.key)), e.value, depth+1)
		default:
			err = p.visit(path, e.key, e.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pageElement is a part of a page: of a leaf one with flags and a value, of a branch one with a page.
type pageElement struct {
	flags      uint32
	key, value []byte
	childPage  uint64
}

// parseElements reads what a page lists: in order, each within the page.
func parseElements(data []byte, count int, leaf bool) ([]pageElement, error) {
	le := binary.LittleEndian
	all := make([]pageElement, count)
	next := uint64(pageHeaderSize + count*elementSize) // bbolt leaves no gaps: a wrong count would hide elements
	for i := range all {
		at := pageHeaderSize + i*elementSize
		e := data[at : at+elementSize]
		keyAt, keyLen, valueLen := uint64(le.Uint32(e)), uint64(le.Uint32(e[4:])), uint64(0)
		if leaf {
			keyAt, keyLen, valueLen = keyLen, uint64(le.Uint32(e[8:])), uint64(le.Uint32(e[12:]))
			all[i].flags = le.Uint32(e)
		} else {
			all[i].childPage = le.Uint64(e[8:])
		}
		from := uint64(at) + keyAt
		if from+keyLen+valueLen > uint64(len(data)) {
			return nil, malformed("an element that is not on its page")
		}
		if from != next {
			return nil, malformed("an element that does not follow the one before it")
		}
		next = from + keyLen + valueLen
		all[i].key, all[i].value = data[from:from+keyLen], data[from+keyLen:from+keyLen+valueLen]
		if leaf && keyLen == 0 || i > 0 && bytes.Compare(all[i-1].key, all[i].key) >= 0 {
			return nil, malformed("keys out of order")
		}
	}
	return all, nil
}

// readBucket reads a bucket: a separate page, or one within the value.
func (p *pageReader) readBucket(path []string, value []byte, depth int) error {
	if len(value) < bucketHeaderSize {
		return malformed("a bucket of %d bytes", len(value))
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		return p.readPage(root, path, depth, keyRange{})
	}
	if value = value[bucketHeaderSize:]; len(value) < pageHeaderSize {
		return malformed("a bucket of %d bytes", len(value))
	}
	if binary.LittleEndian.Uint16(value[8:]) != leafPage {
		return malformed("a bucket within a page that is none of values")
	}
	return p.readElements(value, path, depth, keyRange{})
}
