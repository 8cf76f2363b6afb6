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
	pageHeader  = 16 // id, flags, count, overflow
	metaBytes   = 64
	elementSize = 16 // of a branch and of a leaf alike
	bucketSize  = 16 // root, sequence
	boltMagic   = 0xED0CDAED
	boltVersion = 2
	noFreelist  = ^uint64(0)
	manyIDs     = 0xFFFF // in a count: the first word is the count
	maxDepth    = 64     // of pages and of buckets in buckets together

	branchPage, leafPage, freePage = 1, 2, 0x10 // a page has exactly one kind, or bbolt panics

	bucketLeaf = 1 // flag of an element that is a bucket
)

// pages reads the pages of a database, each one time.
type pages struct {
	file  io.ReaderAt
	size  int64 // of a page
	end   uint64
	used  map[uint64]struct{}
	visit func(path []string, key, value []byte) error
}

// meta is the content of a meta page.
type meta struct {
	size               int64
	root, free, end    uint64
	transaction, check uint64
}

// walk reads a database of a length and passes every pair of every bucket. Whatever the file is, it
// ends with an error or without one, after a time in proportion to its length.
func walk(file io.ReaderAt, length int64, visit func(path []string, key, value []byte) error) error {
	m, err := newestMeta(file, length)
	if err != nil {
		return err
	}
	p := &pages{file: file, size: m.size, end: m.end, used: map[uint64]struct{}{0: {}, 1: {}}, visit: visit}
	if m.free != noFreelist {
		if err := p.freelist(m.free); err != nil {
			return err
		}
	}
	return p.page(m.root, nil, 0, span{})
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// newestMeta reads the two meta pages; one of them may be torn.
func newestMeta(file io.ReaderAt, length int64) (best meta, err error) {
	head := make([]byte, pageHeader+metaBytes)
	for _, size := range []int64{0, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16} {
		_, err := file.ReadAt(head, size)
		m, ok := parseMeta(head)
		if err == nil && ok && (size == 0 || size == m.size) && m.transaction >= best.transaction {
			best = m
		}
	}
	switch {
	case best.size == 0:
		return best, malformed("it has no valid meta page")
	case best.end < 2 || best.end > uint64(length/best.size):
		return best, malformed("it ends before its last page")
	}
	return best, nil
}

func parseMeta(page []byte) (m meta, ok bool) {
	le := binary.LittleEndian
	b := page[pageHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaBytes-8]) // a hash never fails
	m = meta{
		size: int64(le.Uint32(b[8:])), root: le.Uint64(b[16:]), free: le.Uint64(b[32:]), end: le.Uint64(b[40:]),
		transaction: le.Uint64(b[48:]), check: le.Uint64(b[56:]),
	}
	fits := m.size >= 1<<9 && m.size <= 1<<16 && m.size&(m.size-1) == 0
	// bbolt does not check the kind of these pages either.
	return m, fits && le.Uint32(b) == boltMagic && le.Uint32(b[4:]) == boltVersion && m.check == sum.Sum64()
}

// load reads a page with its overflow pages, and marks it as used.
func (p *pages) load(id uint64) ([]byte, error) {
	if id < 2 || id >= p.end {
		return nil, malformed("page %d of %d", id, p.end)
	}
	head := make([]byte, pageHeader)
	if _, err := p.file.ReadAt(head, int64(id)*p.size); err != nil {
		return nil, malformed("page %d: %v", id, err)
	}
	over := uint64(binary.LittleEndian.Uint32(head[12:]))
	if binary.LittleEndian.Uint64(head) != id || over >= p.end-id {
		return nil, malformed("page %d has a wrong head", id)
	}
	for i := id; i <= id+over; i++ {
		if _, twice := p.used[i]; twice {
			return nil, malformed("page %d is used twice", i)
		}
		p.used[i] = struct{}{}
	}
	data := make([]byte, int64(over+1)*p.size)
	if _, err := p.file.ReadAt(data, int64(id)*p.size); err != nil {
		return nil, malformed("page %d: %v", id, err)
	}
	return data, nil
}

// freelist reads the ids of the pages that are free: nothing else may use them.
func (p *pages) freelist(id uint64) error {
	data, err := p.load(id)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	count, ids := uint64(le.Uint16(data[10:])), data[pageHeader:]
	if count == manyIDs {
		count, ids = le.Uint64(ids), ids[8:]
	}
	if le.Uint16(data[8:]) != freePage || count > uint64(len(ids)/8) {
		return malformed("its list of free pages is wrong")
	}
	for ; count > 0; count, ids = count-1, ids[8:] {
		free := le.Uint64(ids)
		if _, twice := p.used[free]; twice || free >= p.end {
			return malformed("page %d cannot be free", free)
		}
		p.used[free] = struct{}{}
	}
	return nil
}

// span is the range of the keys of a page: from the first one on, before the end. A nil end is
// unbounded. bbolt panics in a concurrent goroutine that reads ahead when a key is outside.
type span struct{ first, end []byte }

func (p *pages) page(id uint64, path []string, depth int, keys span) error {
	data, err := p.load(id)
	if err != nil {
		return err
	}
	return p.elements(data, path, depth, keys)
}

// elements checks the elements of a page, of the file or in a bucket that is a value.
func (p *pages) elements(data []byte, path []string, depth int, keys span) error {
	le := binary.LittleEndian
	flags, count := le.Uint16(data[8:]), int(le.Uint16(data[10:]))
	switch {
	case depth > maxDepth:
		return malformed("it is nested too deep")
	case flags != leafPage && (flags != branchPage || count == 0), pageHeader+count*elementSize > len(data):
		return malformed("a page of %d elements and kind %d", count, flags)
	}
	all, err := elementsOf(data, count, flags == leafPage)
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
			within := span{first: e.key, end: keys.end}
			if i+1 < count {
				within.end = all[i+1].key
			}
			err = p.page(e.page, path, depth+1, within)
		case e.flags&bucketLeaf != 0:
			err = p.bucket(append(slices.Clip(path), string(e.key)), e.value, depth+1)
		default:
			err = p.visit(path, e.key, e.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// element is a part of a page: of a leaf one with flags and a value, of a branch one with a page.
type element struct {
	flags      uint32
	key, value []byte
	page       uint64
}

// elementsOf reads what a page lists: in order, each within the page.
func elementsOf(data []byte, count int, leaf bool) ([]element, error) {
	le := binary.LittleEndian
	all := make([]element, count)
	next := uint64(pageHeader + count*elementSize) // bbolt leaves no gaps: a wrong count would hide elements
	for i := range all {
		at := pageHeader + i*elementSize
		e := data[at : at+elementSize]
		keyAt, keyLen, valueLen := uint64(le.Uint32(e)), uint64(le.Uint32(e[4:])), uint64(0)
		if leaf {
			keyAt, keyLen, valueLen = keyLen, uint64(le.Uint32(e[8:])), uint64(le.Uint32(e[12:]))
			all[i].flags = le.Uint32(e)
		} else {
			all[i].page = le.Uint64(e[8:])
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

// bucket reads a bucket: a separate page, or one within the value.
func (p *pages) bucket(path []string, value []byte, depth int) error {
	if len(value) < bucketSize {
		return malformed("a bucket of %d bytes", len(value))
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		return p.page(root, path, depth, span{})
	}
	if value = value[bucketSize:]; len(value) < pageHeader {
		return malformed("a bucket of %d bytes", len(value))
	}
	if binary.LittleEndian.Uint16(value[8:]) != leafPage {
		return malformed("a bucket within a page that is none of values")
	}
	return p.elements(value, path, depth, span{})
}
