package ext4

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// inodeContent reads the content of an inode: the bytes of a file, or the entries of a directory. It is
// safe for concurrent use.
type inodeContent struct {
	fs         *FS
	inode      *inode
	inlineData []byte // where it is in the inode; the rest is zero
	lastRun    atomic.Pointer[blockRun]
}

// openContent opens the content of an inode.
func (f *FS) openContent(n *inode) (*inodeContent, error) {
	c := &inodeContent{fs: f, inode: n}
	switch {
	case n.flags&flagEncrypted != 0:
		return nil, fmt.Errorf("inode %d: %w", n.number, ErrEncrypted)
	case n.flags&flagInline != 0:
		b, err := n.inlineData()
		if err != nil {
			return nil, fmt.Errorf("inode %d: %w", n.number, err)
		}
		c.inlineData = b
	}
	return c, nil
}

func (c *inodeContent) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("ext4: negative offset")
	}
	if off >= c.inode.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), c.inode.size-off)]
	if c.inode.flags&flagInline != 0 {
		clear(want) // a file may be longer than its inline content: mke2fs creates such files without data
		if off < int64(len(c.inlineData)) {
			copy(want, c.inlineData[off:])
		}
		return len(want), shortReadError(len(p), len(want))
	}
	for n := 0; n < len(want); {
		part, err := c.readInRun(want[n:], off+int64(n))
		n += part
		if err != nil {
			return n, err
		}
	}
	return len(want), shortReadError(len(p), len(want))
}

// shortReadError is the error of a read that ends with the file.
func shortReadError(asked, got int) error {
	if got < asked {
		return io.EOF
	}
	return nil
}

// readInRun reads within one run.
func (c *inodeContent) readInRun(p []byte, off int64) (int, error) {
	size := c.fs.superblock.blockSize
	r, err := c.runAt(uint64(off / size))
	if err != nil {
		return 0, err
	}
	within := off - int64(r.fileBlock)*size
	p = p[:min(int64(len(p)), int64(r.count)*size-within)]
	if r.diskBlock == 0 {
		clear(p)
		return len(p), nil
	}
	n, err := c.fs.r.ReadAt(p, int64(r.diskBlock)*size+within)
	if n == len(p) {
		c.fs.reads.addRange(int64(r.diskBlock)*size+within, int64(n))
		return n, nil
	}
	c.fs.reads.addFailure()
	if err == nil || errors.Is(err, io.EOF) {
		err = damaged("its block %d is past the end of the disk", r.diskBlock)
	}
	return n, fmt.Errorf("inode %d: %w", c.inode.number, err)
}

// runAt returns the run of a block; it is mostly the most recently used one.
func (c *inodeContent) runAt(block uint64) (blockRun, error) {
	if r := c.lastRun.Load(); r != nil && r.contains(block) {
		return *r, nil
	}
	r, err := c.fs.findRun(c.inode, block)
	if err == nil {
		c.lastRun.Store(&r)
	}
	return r, err
}

// Attributes in an inode, one of which has the content that does not fit among the block numbers.
const (
	attrMagic       = 0xea020000
	attrEntrySize   = 16
	attrSystemIndex = 7
	attrData        = "data"
)

// inlineData returns the content of a file that is in its inode.
func (n *inode) inlineData() ([]byte, error) {
	b := append([]byte{}, n.blockMap[:]...)
	if n.size > blockMapBytes {
		more, err := n.dataAttribute()
		if err != nil {
			return nil, err
		}
		b = append(b, more...)
	}
	return b[:min(n.size, int64(len(b)))], nil
}

// dataAttribute finds the attribute system.data among those in the inode.
func (n *inode) dataAttribute() ([]byte, error) {
	le := binary.LittleEndian
	if len(n.inlineAttrs) < 4 || le.Uint32(n.inlineAttrs) != attrMagic {
		return nil, nil
	}
	all := n.inlineAttrs[4:]
	for at := 0; at+attrEntrySize <= len(all) && le.Uint32(all[at:]) != 0; {
		e := all[at:]
		length := int(e[0])
		if attrEntrySize+length > len(e) {
			break
		}
		if e[1] == attrSystemIndex && string(e[attrEntrySize:attrEntrySize+length]) == attrData {
			off, size := int(le.Uint16(e[2:])), uint64(le.Uint32(e[8:]))
			if off > len(all) || size > uint64(len(all)-off) || le.Uint32(e[4:]) != 0 {
				return nil, damaged("the rest of its content is outside the inode's attributes")
			}
			return all[off : off+int(size)], nil
		}
		at += attrEntrySize + (length+3)&^3
	}
	return nil, nil
}
