package rpm

import (
	"context"
	"encoding/binary"
	"fmt"
)

// The form of SQLite (https://www.sqlite.org/fileformat2.html): the table Packages has a row for each header. All
// numbers are big-endian.
const (
	sqliteMagic      = "SQLite format 3\x00"
	sqliteHeaderSize = 100
	sqliteLeaf       = 0x0d // types of pages
	sqliteInterior   = 0x05

	maxTreeDepth   = 20
	maxSchemaBytes = 64 << 10
	packagesTable  = "Packages"
)

func isSQLite(start []byte) bool { return string(start[:len(sqliteMagic)]) == sqliteMagic }

// sqliteReader reads tables.
type sqliteReader struct {
	*blobReader
	log       *sqliteLog
	pageSize  int
	usable    int    // bytes of a page
	pageCount uint32 // of the newest transaction, which may be more than there are
	filePages int64
	seen      pageSet // each page belongs to one place; those of the log are behind those of the file
}

// eachSQLite calls do for every header. log is the write-ahead log; nil: there is none.
func eachSQLite(r *blobReader, log []byte, do func([]byte) error) error {
	head, err := r.page(0, sqliteHeaderSize)
	if err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint16(head[16:]))
	if size == 1 {
		size = 64 << 10
	}
	s := &sqliteReader{blobReader: r, pageSize: size, usable: size - int(head[20])}
	if size < 512 || size&(size-1) != 0 || s.usable < 480 {
		return fmt.Errorf("%w: its pages have %d bytes", errDamaged, size)
	}
	s.filePages = r.size / int64(size)
	s.pageCount = uint32(min(s.filePages, 1<<32-2))
	if s.log = parseLog(log, size); s.log != nil {
		s.pageCount = s.log.pageCount
		r.budget += int64(len(s.log.data))
	}
	if s.seen, err = newPageSet(s.filePages + s.log.frames()); err != nil {
		return err
	}
	root := uint32(0)
	err = s.eachRow(1, 0, func(payload []byte) error {
		if kind, name, page := schemaRow(payload); kind == "table" && name == packagesTable {
			root = page
		}
		return nil
	}, maxSchemaBytes)
	switch {
	case err != nil:
		return err
	case root == 0:
		return nil // rpm creates the table with the first package
	}
	return s.eachRow(root, 0, func(payload []byte) error {
		if blob := firstBlob(payload); blob != nil {
			return do(blob)
		}
		return fmt.Errorf("%w: a row has no header", errDamaged)
	}, maxHeaderBytes)
}

// readPage returns a page, of the log where it has it. It is valid until the next call.
func (s *sqliteReader) readPage(n uint32) ([]byte, error) {
	if s.ctx.Err() != nil { // pages of the log are in memory
		return nil, context.Cause(s.ctx)
	}
	if n == 0 || n > s.pageCount {
		return nil, fmt.Errorf("%w: page %d of %d", errCutOff, n, s.pageCount)
	}
	page, frame := s.log.page(n)
	place := s.filePages + frame
	if page == nil {
		var err error
		place = int64(n - 1)
		if page, err = s.page(place*int64(s.pageSize), s.pageSize); err != nil {
			return nil, err
		}
	}
	if !s.seen.add(place) {
		return nil, fmt.Errorf("%w: page %d is in two places", errDamaged, n)
	}
	return page, nil
}

// eachRow calls do for the rows of a table, in the tree of a page. Longer rows than a limit have no content.
func (s *sqliteReader) eachRow(n uint32, depth int, do func(payload []byte) error, limit int64) error {
	if depth > maxTreeDepth {
		return fmt.Errorf("%w: a table has more than %d levels", errDamaged, maxTreeDepth)
	}
	read, err := s.readPage(n)
	if err != nil {
		return err
	}
	page := append([]byte(nil), read...)
	at := 0
	if n == 1 {
		at = sqliteHeaderSize
	}
	kind, count := page[at], int(binary.BigEndian.Uint16(page[at+3:]))
	headSize := 8
	if kind == sqliteInterior {
		headSize = 12
	}
	if kind != sqliteLeaf && kind != sqliteInterior || at+headSize+2*count > len(page) {
		return fmt.Errorf("%w: page %d is not of a table", errDamaged, n)
	}
	for i := range count {
		cell := int(binary.BigEndian.Uint16(page[at+headSize+2*i:]))
		if cell > s.usable-4 {
			return fmt.Errorf("%w: a row of page %d is outside of it", errDamaged, n)
		}
		if kind == sqliteLeaf {
			err = s.readRow(page[cell:s.usable], do, limit)
		} else {
			err = s.eachRow(binary.BigEndian.Uint32(page[cell:]), depth+1, do, limit)
		}
		if err != nil {
			return err
		}
	}
	if kind == sqliteInterior {
		return s.eachRow(binary.BigEndian.Uint32(page[at+8:]), depth+1, do, limit)
	}
	return nil
}

// readRow reads a row from its cell and the pages that continue it.
func (s *sqliteReader) readRow(cell []byte, do func(payload []byte) error, limit int64) error {
	size, n := uvarint(cell)
	_, k := uvarint(cell[n:]) // its number
	if n == 0 || k == 0 || size > maxHeaderBytes {
		return fmt.Errorf("%w: a row has %d bytes", errDamaged, size)
	}
	if err := s.begin(int64(size)); err != nil {
		return err
	}
	if int64(size) > limit {
		return nil
	}
	cell = cell[n+k:]
	local := s.localBytes(int(size))
	if local > len(cell) || local < int(size) && local+4 > len(cell) {
		return fmt.Errorf("%w: a row is outside of its page", errDamaged)
	}
	s.blob = append(s.blob, cell[:local]...)
	if local < int(size) {
		next := binary.BigEndian.Uint32(cell[local:])
		for len(s.blob) < int(size) {
			page, err := s.readPage(next)
			if err != nil {
				return err
			}
			next = binary.BigEndian.Uint32(page)
			s.blob = append(s.blob, page[4:][:min(s.usable-4, int(size)-len(s.blob))]...)
		}
	}
	return do(s.blob)
}

// localBytes returns how many bytes of a row are in its cell.
func (s *sqliteReader) localBytes(size int) int {
	if size <= s.usable-35 {
		return size
	}
	least := (s.usable-12)*32/255 - 23
	if local := least + (size-least)%(s.usable-4); local <= s.usable-35 {
		return local
	}
	return least
}

// uvarint reads a number of SQLite, and returns how many bytes it takes; 0 when they are not all there.
func uvarint(b []byte) (v uint64, n int) {
	for n < len(b) && n < 8 {
		v = v<<7 | uint64(b[n]&0x7f)
		n++
		if b[n-1] < 0x80 {
			return v, n
		}
	}
	if n < len(b) {
		return v<<8 | uint64(b[n]), n + 1
	}
	return 0, 0
}

// column is a value of a row.
type column struct {
	kind uint64 // its serial type
	data []byte
}

// columns returns the values of a row, at most some.
func columns(payload []byte, most int) (out []column) {
	size, n := uvarint(payload)
	if n == 0 || size > uint64(len(payload)) || size < uint64(n) {
		return nil
	}
	kinds, data := payload[n:size], payload[size:]
	for len(kinds) > 0 && len(out) < most {
		kind, n := uvarint(kinds)
		length := columnBytes(kind)
		if n == 0 || length > uint64(len(data)) {
			return out
		}
		out = append(out, column{kind, data[:length]})
		kinds, data = kinds[n:], data[length:]
	}
	return out
}

// columnBytes returns the size of a value of a serial type.
func columnBytes(kind uint64) uint64 {
	switch {
	case kind >= 12:
		return (kind - 12) / 2
	case kind >= 8, kind == 0:
		return 0
	case kind == 5:
		return 6
	case kind >= 6:
		return 8
	}
	return kind
}

// firstBlob returns the first value of a row that is a blob.
func firstBlob(payload []byte) []byte {
	for _, c := range columns(payload, 4) {
		if c.kind >= 12 && c.kind%2 == 0 {
			return c.data
		}
	}
	return nil
}

// schemaRow reads a row of the schema: the type and name of an object, and its first page.
func schemaRow(payload []byte) (kind, name string, page uint32) {
	c := columns(payload, 4)
	if len(c) < 4 || len(c[3].data) > 4 {
		return "", "", 0
	}
	for _, b := range c[3].data {
		page = page<<8 | uint32(b)
	}
	if c[3].kind == 9 { // the constant 1
		page = 1
	}
	return string(c[0].data), string(c[1].data), page
}
