package btrfs

import (
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

const (
	inodeItemSize  = 160
	inodeRefSize   = 10 // before the name
	flagNoSums     = 1  // in the flags: its content has no checksums
	inodeBits      = 52 // of the number of an inode in its ID
	placeBit       = 1 << 63
	emptyDirectory = 2 // number of a directory in the place of a subvolume that is not shown
)

// inode has the fields of an inode.
type inode struct {
	in     *subvolume
	number uint64
	mode   uint16
	links  uint32
	size   int64
	mtime  time.Time
	noSums bool
	// placeID is the ID of an empty directory in the place of a subvolume; 0: it is another inode.
	placeID uint64
}

func (n *inode) kind() uint16 { return n.mode & inodefs.ModeKind }
func (n *inode) isDir() bool  { return n.kind() == inodefs.ModeDir }

// readInode reads an inode of a subvolume. The cursor is at its item.
func (f *FS) readInode(in *subvolume, number uint64) (*inode, *cursor, error) {
	if number>>inodeBits != 0 {
		return nil, nil, damaged("a name leads to inode %d, which is too large", number)
	}
	c, err := f.device.seekLast(in.tree, key{number, kindInode, 0})
	if err != nil {
		return nil, nil, fmt.Errorf("inode %d of subvolume %d: %w", number, in.id, err)
	}
	if !c.is(number, kindInode) {
		return nil, nil, damaged("a name leads to inode %d of subvolume %d, which does not exist", number, in.id)
	}
	n, err := parseInode(c.data())
	if err != nil {
		return nil, nil, fmt.Errorf("inode %d of subvolume %d: %w", number, in.id, err)
	}
	n.in, n.number = in, number
	return n, c, nil
}

func parseInode(b []byte) (*inode, error) {
	if len(b) != inodeItemSize {
		return nil, damaged("it has %d bytes", len(b))
	}
	n := &inode{
		mode: uint16(le.Uint32(b[52:])), links: le.Uint32(b[40:]), size: int64(le.Uint64(b[16:])),
		mtime:  time.Unix(int64(le.Uint64(b[136:])), int64(le.Uint32(b[144:]))),
		noSums: le.Uint64(b[64:])&flagNoSums != 0,
	}
	if n.size < 0 {
		return nil, damaged("it has %d bytes of content", uint64(n.size))
	}
	return n, nil
}

// hasName reports whether the first name of the inode at a cursor is the one in a directory. No directory has two
// names: so there is one path to each, and every walk ends.
func hasName(c *cursor, number, dir uint64, name string) (bool, error) {
	if err := c.next(); err != nil {
		return false, err
	}
	if !c.is(number, kindInodeRef) || c.key().offset != dir {
		return false, nil
	}
	b := c.data()
	if len(b) < inodeRefSize {
		return false, nil
	}
	length := int(le.Uint16(b[8:]))
	return len(b) >= inodeRefSize+length && string(b[inodeRefSize:][:length]) == name, nil
}

// ID returns a number of the inode among all subvolumes: files with the same one are the same file.
func (n *inode) ID() uint64 {
	if n.placeID != 0 {
		return n.placeID
	}
	return n.in.index<<inodeBits | n.number
}

// Links returns the number of names of the file.
func (n *inode) Links() uint64 { return uint64(n.links) }

// IsLink reports whether the inode is a symbolic link.
func (n *inode) IsLink() bool { return n.kind() == inodefs.ModeLink }

// Attributes returns its mode, its size, and when its content was changed.
func (n *inode) Attributes() (mode uint16, size int64, changed time.Time) {
	return n.mode, n.size, n.mtime
}
