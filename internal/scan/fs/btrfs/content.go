package btrfs

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

const (
	extentCacheBytes = 4 << 20   // of the cached decompressed extents, in bytes
	maxReadBytes     = 128 << 10 // that are read and verified at a time
)

// openInode opens an inode that is in a directory.
func (f *FS) openInode(n *inode, name string) (fs.File, error) {
	i := inodefs.Info(n, inodefs.BaseName(name))
	switch {
	case n.isDir():
		return inodefs.OpenDir(i, func() ([]fs.DirEntry, error) { return f.readDir(n, i.Name()) }), nil
	case n.kind() != inodefs.ModeRegular:
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file or directory")}
	}
	return inodefs.OpenFile(i, &inodeContent{fs: f, inode: n}), nil
}

// inodeContent reads the content of a file. It is safe for concurrent use.
type inodeContent struct {
	fs    *FS
	inode *inode
	last  atomic.Pointer[extent]
}

// ReadAt does not end at the end of the file; the caller knows the size.
func (c *inodeContent) ReadAt(p []byte, off int64) (int, error) {
	for n := 0; n < len(p); {
		part, err := c.readInExtent(p[n:], off+int64(n))
		n += part
		if err != nil {
			return n, fmt.Errorf("inode %d of subvolume %d: %w", c.inode.number, c.inode.in.id, err)
		}
	}
	return len(p), nil
}

// readInExtent reads within one extent.
func (c *inodeContent) readInExtent(p []byte, off int64) (int, error) {
	e := c.last.Load()
	if e == nil || !e.contains(off) {
		var err error
		if e, err = c.fs.findExtent(c.inode, off); err != nil {
			return 0, err
		}
		c.last.Store(e)
	}
	p = p[:min(int64(len(p)), e.end-off)]
	within := off - e.start
	switch {
	case e.isHole:
		clear(p)
		return len(p), nil
	case e.inline != nil:
		return copy(p, e.inline[within:]), nil
	case e.disk.packing != packNone:
		b, err := c.fs.readPacked(e.disk, c.inode.noSums)
		if err != nil {
			return 0, err
		}
		return copy(p, b[int64(e.offset)+within:]), nil
	}
	return c.fs.readContent(p, e.disk.address+e.offset+uint64(within), c.inode.noSums)
}

// readPacked returns a compressed extent without its compression.
func (f *FS) readPacked(d extentPart, noSums bool) ([]byte, error) {
	if b, ok := f.extents.Get(d); ok {
		return b, nil
	}
	buf := buffers.Get().(*[maxReadBytes]byte)
	defer buffers.Put(buf)
	packed := buf[:d.packed]
	if err := f.readSectors(packed, d.address, noSums); err != nil {
		return nil, err
	}
	b, err := unpack(d.packing, packed, int(d.unpacked), f.device.superblock.sectorSize)
	if err != nil {
		return nil, fmt.Errorf("its extent at the logical address %d: %w", d.address, err)
	}
	f.extents.Put(d, b)
	return b, nil
}

// buffers has buffers for what is read from the disk.
var buffers = sync.Pool{New: func() any { return new([maxReadBytes]byte) }}

// readContent reads content at a logical address, and returns how many bytes it read: not all that fit into p.
func (f *FS) readContent(p []byte, address uint64, noSums bool) (int, error) {
	sector := uint64(f.device.superblock.sectorSize)
	skip := address % sector
	if skip == 0 && uint64(len(p)) >= sector {
		p = p[:min(uint64(len(p))/sector*sector, maxReadBytes)]
		return len(p), f.readSectors(p, address, noSums)
	}
	buf := buffers.Get().(*[maxReadBytes]byte)
	defer buffers.Put(buf)
	count := min((skip+uint64(len(p))+sector-1)/sector*sector, maxReadBytes)
	if err := f.readSectors(buf[:count], address-skip, noSums); err != nil {
		return 0, err
	}
	return copy(p, buf[skip:count]), nil
}

// readSectors fills p with sectors at a logical address, and verifies them. If one copy is damaged, the other is read.
func (f *FS) readSectors(p []byte, address uint64, noSums bool) error {
	offsets, copies, err := f.device.chunks.find(address, uint64(len(p)))
	if err != nil {
		return err
	}
	var first error
	for _, off := range offsets[:copies] {
		err := f.device.pages.Read(p, off)
		if err == nil && !noSums {
			err = f.verify(p, address)
		}
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// findChecksums finds the tree of checksums. There is none after some repairs.
func (c *shared) findChecksums() error {
	var err error
	c.checksums, err = c.device.readRoot(checksumTree)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c.hasSums = err == nil
	return err
}

// verify verifies sectors at a logical address. Those without checksums are taken as they are.
func (f *FS) verify(b []byte, address uint64) error {
	if !f.hasSums {
		return nil
	}
	s := f.device.superblock
	c, err := f.device.seekLast(f.checksums, key{checksumObjects, kindChecksum, address})
	if err == nil && !c.is(checksumObjects, kindChecksum) { // the first one may be behind the address
		c, err = f.device.seek(f.checksums, key{checksumObjects, kindChecksum, address})
	}
	end := address + uint64(len(b))
	for ; err == nil && c.is(checksumObjects, kindChecksum) && c.key().offset < end; err = c.next() {
		start, sums := c.key().offset, c.data()
		if start%uint64(s.sectorSize) != 0 {
			return damaged("the tree of checksums has some at %d, which is not at a sector", start)
		}
		for k := max(start, address); k < end; k += uint64(s.sectorSize) {
			at := (k - start) / uint64(s.sectorSize) * uint64(s.sum.size)
			if at+uint64(s.sum.size) > uint64(len(sums)) {
				break
			}
			if !s.sum.equal(b[k-address:][:s.sectorSize], sums[at:]) {
				return damaged("its content at the logical address %d is not what its checksum says", k)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("tree of checksums: %w", err)
	}
	return nil
}
