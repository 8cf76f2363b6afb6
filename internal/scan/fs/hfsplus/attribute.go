package hfsplus

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/fs/decmpfs"
)

// Form of the tree of attributes: keys have an unused number, the file, a block, and the name with its length.
const (
	attributeKeySize    = 12 // without the name
	attributeHeaderSize = 16
	attributeInline     = 0x10 // the kind of a record that has the bytes
)

// findAttribute returns the record of an attribute; fs.ErrNotExist if there is none.
func (f *FS) findAttribute(file uint32, name string) (position, error) {
	if f.attributes == nil {
		return position{}, fs.ErrNotExist
	}
	want := asciiName(name)
	p, err := f.attributes.find(func(key []byte) (int, error) {
		if len(key) < attributeKeySize || 2*int(be.Uint16(key[10:])) > len(key)-attributeKeySize {
			return 0, damaged("a key of the tree of attributes has %d bytes", len(key))
		}
		// With the high byte first, the order of bytes is that of characters.
		return cmp.Or(cmp.Compare(be.Uint32(key[2:]), file),
			strings.Compare(string(key[attributeKeySize:][:2*int(be.Uint16(key[10:]))]), want)), nil
	})
	if err == nil && (p.node == nil || !p.isExact) {
		err = fs.ErrNotExist
	}
	return p, err
}

// readAttribute reads an attribute that is in its record, as those that are read here always are; fs.ErrNotExist if
// there is none.
func (f *FS) readAttribute(file uint32, name string) ([]byte, error) {
	p, err := f.findAttribute(file, name)
	if err != nil {
		return nil, err
	}
	_, value, err := p.record()
	if err != nil {
		return nil, err
	}
	if len(value) < attributeHeaderSize || be.Uint32(value) != attributeInline {
		return nil, damaged("attribute %s of file %d is not in its record", name, file)
	}
	size := be.Uint32(value[12:])
	if uint64(size) > uint64(len(value)-attributeHeaderSize) {
		return nil, damaged("attribute %s of file %d has %d bytes in %d", name, file, size, len(value))
	}
	return value[attributeHeaderSize:][:size], nil
}

// compressionAttr returns the attribute of a compressed file.
func (f *FS) compressionAttr(id uint32) (decmpfs.Source, error) {
	b, err := f.readAttribute(id, decmpfs.Attribute)
	if err != nil {
		return decmpfs.Source{}, damaged("file %d is compressed and has no %s: %v", id, decmpfs.Attribute, err)
	}
	return decmpfs.Source{ReaderAt: bytes.NewReader(b), Size: int64(len(b))}, nil
}

// openCompressed opens the content of a compressed file.
func (f *FS) openCompressed(n *inode) (io.ReaderAt, error) {
	attr, err := f.compressionAttr(n.number)
	if err != nil {
		return nil, err
	}
	file, err := decmpfs.Open(attr, func() (decmpfs.Source, error) {
		if n.resource.size == 0 {
			return decmpfs.Source{}, fs.ErrNotExist
		}
		k, err := f.openFork(n.number, resourceFork, n.resource)
		return decmpfs.Source{ReaderAt: k, Size: n.resource.size}, err
	}, f.blocks, uint64(n.number))
	if err != nil {
		return nil, fmt.Errorf("compressed file %d: %w", n.number, err)
	}
	return file, nil
}
