package xfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// inodeContent reads the content of an inode whose content is not in it: the bytes of a file, or the blocks
// of a directory. It is safe for concurrent use.
type inodeContent struct {
	fs      *FS
	inode   *inode
	lastRun atomic.Pointer[blockRun]
}

// ReadAt reads at most up to the end of the last block; the caller knows the size.
func (c *inodeContent) ReadAt(p []byte, off int64) (int, error) {
	for n := 0; n < len(p); {
		part, err := c.readInRun(p[n:], off+int64(n))
		n += part
		if err != nil {
			return n, err
		}
	}
	return len(p), nil
}

// readInRun reads within one run.
func (c *inodeContent) readInRun(p []byte, off int64) (int, error) {
	s := c.fs.superblock
	block := uint64(off >> s.blockLog)
	r, err := c.runAt(block)
	if err != nil {
		return 0, err
	}
	blocks := min(r.end()-block, uint64(len(p))>>s.blockLog+1) // a hole may have more bytes than a number
	p = p[:min(int64(len(p)), int64(blocks)<<s.blockLog-off%s.blockSize)]
	if r.offset == 0 {
		clear(p)
		return len(p), nil
	}
	n, err := c.fs.pages.ReadAt(p, r.offset+off-int64(r.fileBlock)<<s.blockLog)
	if n == len(p) {
		return n, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = damaged("its block %d is past the end of the disk", block)
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

const (
	maxTargetBytes   = 1024 // of a symbolic link
	maxTargetBlocks  = 3    // in one run
	targetMagic      = "XSLM"
	targetHeaderSize = 56 // of each run, in version 5
)

// readLinkTarget reads a symbolic link. A short one is in its inode.
func (f *FS) readLinkTarget(n *inode) (string, error) {
	switch {
	case !n.IsLink():
		return "", errors.New("not a symbolic link")
	case n.size <= 0 || n.size > maxTargetBytes:
		return "", damaged("a symbolic link of %d bytes", n.size)
	}
	b := n.fork
	if n.form != formLocal {
		b = make([]byte, 0, n.size)
		for block := uint64(0); len(b) < int(n.size); {
			part, next, err := f.readTargetRun(n, block, len(b))
			if err != nil {
				return "", fmt.Errorf("inode %d: %w", n.number, err)
			}
			b, block = append(b, part...), next
		}
	}
	if bytes.IndexByte(b, 0) >= 0 {
		return "", damaged("a symbolic link with a zero in it")
	}
	return string(b), nil
}

// readTargetRun reads the part of a symbolic link that is in the run with a block and begins at a byte of the
// target. It returns the next block, too.
func (f *FS) readTargetRun(n *inode, block uint64, at int) (part []byte, next uint64, err error) {
	r, err := f.findRun(n, block)
	if err != nil {
		return nil, 0, err
	}
	if r.offset == 0 || r.count > maxTargetBlocks {
		return nil, 0, damaged("a symbolic link with %d blocks in a hole or in one piece", r.count)
	}
	b := make([]byte, int64(r.count)*f.superblock.blockSize)
	if err := f.pages.Read(b, r.offset); err != nil {
		return nil, 0, err
	}
	missing := int(n.size) - at
	if !f.superblock.hasChecksums() {
		return b[:min(missing, len(b))], r.end(), nil
	}
	if err := f.superblock.verifyBlock(b, targetHeader, r.offset, n.number); err != nil {
		return nil, 0, err
	}
	count := uint64(be.Uint32(b[8:]))
	if string(b[:len(targetMagic)]) != targetMagic || uint64(be.Uint32(b[4:])) != uint64(at) || count == 0 ||
		count > uint64(min(missing, len(b)-targetHeaderSize)) {
		return nil, 0, damaged("a block of a symbolic link has %d bytes from byte %d on", count, be.Uint32(b[4:]))
	}
	return b[targetHeaderSize:][:count], r.end(), nil
}
