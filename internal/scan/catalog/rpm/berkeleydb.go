package rpm

import (
	"encoding/binary"
	"fmt"
)

// The hash tables of Berkeley DB (its sources: src/dbinc/db_page.h). Their numbers have the byte order of the machine
// that wrote them.
const (
	bdbMagic      = 0x061561 // of a hash table, at magicOffset
	bdbPageHeader = 26

	bdbMagicOffset    = 12
	bdbPageSizeOffset = 20
	bdbCipherOffset   = 24
	bdbTypeOffset     = 25
	bdbLastPageOffset = 32
	bdbNextOffset     = 16
	bdbEntriesOffset  = 20
	bdbUsedOffset     = 22 // of a page of a large item: its bytes there

	bdbHashMeta     = 8  // types of pages
	bdbHashUnsorted = 2  // before version 4.6
	bdbHash         = 13 // since then
	bdbOverflow     = 7

	bdbKeyData   = 1 // types of items
	bdbOffPage   = 3
	bdbOffPageSz = 12

	bdbMinPage, bdbMaxPage = 512, 64 << 10
	bdbMetaSize            = 72
)

// isBerkeleyDB returns the byte order of a hash table; nil for other files.
func isBerkeleyDB(start []byte) binary.ByteOrder {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		if order.Uint32(start[bdbMagicOffset:]) == bdbMagic && start[bdbTypeOffset] == bdbHashMeta {
			return order
		}
	}
	return nil
}

// bdbReader reads a hash table.
type bdbReader struct {
	*blobReader
	order    binary.ByteOrder
	pageSize int
	last     uint32 // page
	do       func([]byte) error
}

// eachBerkeleyDB calls do for every header.
func eachBerkeleyDB(r *blobReader, do func([]byte) error) error {
	meta, err := r.page(0, bdbMetaSize)
	if err != nil {
		return err
	}
	b := &bdbReader{blobReader: r, order: isBerkeleyDB(meta), do: do}
	size := b.order.Uint32(meta[bdbPageSizeOffset:])
	if size < bdbMinPage || size > bdbMaxPage || size&(size-1) != 0 {
		return fmt.Errorf("%w: its pages have %d bytes", errDamaged, size)
	}
	if meta[bdbCipherOffset] != 0 {
		return fmt.Errorf("%w: it is encrypted", errDamaged)
	}
	b.pageSize, b.last = int(size), b.order.Uint32(meta[bdbLastPageOffset:])
	if int64(b.last) >= r.size/int64(size) {
		return fmt.Errorf("%w: %d pages in %d bytes", errCutOff, b.last, r.size)
	}
	page := make([]byte, size)
	for n := uint32(1); n <= b.last; n++ {
		read, err := b.page(int64(n)*int64(size), int(size))
		if err != nil {
			return err
		}
		if t := read[bdbTypeOffset]; t != bdbHash && t != bdbHashUnsorted {
			continue
		}
		copy(page, read)
		if err := b.readHashPage(page); err != nil {
			return err
		}
	}
	return nil
}

// readHashPage reads the headers of a page: keys and values in turn.
func (b *bdbReader) readHashPage(page []byte) error {
	count := int(b.order.Uint16(page[bdbEntriesOffset:]))
	if bdbPageHeader+2*count > len(page) {
		return fmt.Errorf("%w: a page has %d items", errDamaged, count)
	}
	for i := 0; i+1 < count; i += 2 {
		key, value := b.item(page, i), b.item(page, i+1)
		if len(key) == 0 || len(value) == 0 {
			return fmt.Errorf("%w: an item is outside of its page", errDamaged)
		}
		if len(key) == 5 && b.order.Uint32(key[1:]) == 0 {
			continue // the highest number of a package
		}
		if err := b.readValue(value); err != nil {
			return err
		}
	}
	return nil
}

// item returns an item with its type; nil when it is outside of its page. Items are stored from the end of a page:
// each ends where the one before begins.
func (b *bdbReader) item(page []byte, i int) []byte {
	start, end := int(b.order.Uint16(page[bdbPageHeader+2*i:])), len(page)
	if i > 0 {
		end = int(b.order.Uint16(page[bdbPageHeader+2*(i-1):]))
	}
	if start < bdbPageHeader || start >= end || end > len(page) {
		return nil
	}
	return page[start:end]
}

// readValue reads a header: within the page, or in a list of other pages.
func (b *bdbReader) readValue(item []byte) error {
	switch {
	case item[0] == bdbKeyData:
		if err := b.begin(int64(len(item) - 1)); err != nil {
			return err
		}
		b.blob = append(b.blob, item[1:]...)
		return b.do(b.blob)
	case item[0] != bdbOffPage || len(item) < bdbOffPageSz:
		return fmt.Errorf("%w: a value has the type %d", errDamaged, item[0])
	}
	next, size := b.order.Uint32(item[4:]), int64(b.order.Uint32(item[8:]))
	if err := b.begin(size); err != nil {
		return err
	}
	for int64(len(b.blob)) < size {
		if next == 0 || next > b.last {
			return fmt.Errorf("%w: a header continues on page %d of %d", errDamaged, next, b.last)
		}
		page, err := b.page(int64(next)*int64(b.pageSize), b.pageSize)
		if err != nil {
			return err
		}
		used := int(b.order.Uint16(page[bdbUsedOffset:]))
		if page[bdbTypeOffset] != bdbOverflow || used == 0 || used > len(page)-bdbPageHeader {
			return fmt.Errorf("%w: page %d is not of a header", errDamaged, next)
		}
		if b.budget -= int64(len(page) - used); b.budget < 0 { // of pages that are nearly empty
			return fmt.Errorf("%w: its headers are larger than the database", errDamaged)
		}
		b.blob = append(b.blob, page[bdbPageHeader:][:used]...)
		next = b.order.Uint32(page[bdbNextOffset:])
	}
	return b.do(b.blob[:size])
}
