package ext4

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// content reads the content of an inode: the bytes of a file, or the entries of a directory. It is
// safe for concurrent use.
type content struct {
	fs     *FS
	n      *inode
	inline []byte // where it is in the inode; the rest is zero
	last   atomic.Pointer[run]
}

// content opens the content of an inode.
func (f *FS) content(n *inode) (*content, error) {
	c := &content{fs: f, n: n}
	switch {
	case n.flags&flagEncrypted != 0:
		return nil, fmt.Errorf("inode %d: %w", n.number, ErrEncrypted)
	case n.flags&flagInline != 0:
		b, err := n.inline()
		if err != nil {
			return nil, fmt.Errorf("inode %d: %w", n.number, err)
		}
		c.inline = b
	}
	return c, nil
}

func (c *content) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("ext4: negative offset")
	}
	if off >= c.n.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), c.n.size-off)]
	if c.n.flags&flagInline != 0 {
		clear(want) // a file may be longer than its inline content: mke2fs creates such files without data
		if off < int64(len(c.inline)) {
			copy(want, c.inline[off:])
		}
		return len(want), short(len(p), len(want))
	}
	for n := 0; n < len(want); {
		part, err := c.piece(want[n:], off+int64(n))
		n += part
		if err != nil {
			return n, err
		}
	}
	return len(want), short(len(p), len(want))
}

// short is the error of a read that ends with the file.
func short(asked, got int) error {
	if got < asked {
		return io.EOF
	}
	return nil
}

// piece reads within one run.
func (c *content) piece(p []byte, off int64) (int, error) {
	size := c.fs.super.blockSize
	r, err := c.run(uint64(off / size))
	if err != nil {
		return 0, err
	}
	within := off - int64(r.first)*size
	p = p[:min(int64(len(p)), int64(r.n)*size-within)]
	if r.place == 0 {
		clear(p)
		return len(p), nil
	}
	n, err := c.fs.r.ReadAt(p, int64(r.place)*size+within)
	if n == len(p) {
		return n, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = damaged("its block %d is past the end of the disk", r.place)
	}
	return n, fmt.Errorf("inode %d: %w", c.n.number, err)
}

// run returns the run of a block; it is mostly the most recently used one.
func (c *content) run(block uint64) (run, error) {
	if r := c.last.Load(); r != nil && r.has(block) {
		return *r, nil
	}
	r, err := c.fs.find(c.n, block)
	if err == nil {
		c.last.Store(&r)
	}
	return r, err
}

// Attributes in an inode, one of which has the content that does not fit among the block numbers.
const (
	attrMagic  = 0xea020000
	attrEntry  = 16
	attrSystem = 7
	attrData   = "data"
)

// inline returns the content of a file that is in its inode.
func (n *inode) inline() ([]byte, error) {
	b := append([]byte{}, n.where[:]...)
	if n.size > blockArea {
		more, err := n.attribute()
		if err != nil {
			return nil, err
		}
		b = append(b, more...)
	}
	return b[:min(n.size, int64(len(b)))], nil
}

// attribute finds the attribute system.data among those in the inode.
func (n *inode) attribute() ([]byte, error) {
	le := binary.LittleEndian
	if len(n.tail) < 4 || le.Uint32(n.tail) != attrMagic {
		return nil, nil
	}
	all := n.tail[4:]
	for at := 0; at+attrEntry <= len(all) && le.Uint32(all[at:]) != 0; {
		e := all[at:]
		length := int(e[0])
		if attrEntry+length > len(e) {
			break
		}
		if e[1] == attrSystem && string(e[attrEntry:attrEntry+length]) == attrData {
			off, size := int(le.Uint16(e[2:])), uint64(le.Uint32(e[8:]))
			if off > len(all) || size > uint64(len(all)-off) || le.Uint32(e[4:]) != 0 {
				return nil, damaged("the rest of its content lies nowhere")
			}
			return all[off : off+int(size)], nil
		}
		at += attrEntry + (length+3)&^3
	}
	return nil, nil
}
