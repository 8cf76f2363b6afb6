package btrfs

import (
	"bytes"
	"fmt"
	"io/fs"
	"sync"
)

const (
	topLevel        = 5   // the subvolume that has all others
	firstSubvolume  = 256 // number of the first other one
	checksumTree    = 7
	subvolumeRoot   = 256 // inode of the root of a subvolume
	maxSubvolumes   = 1 << (63 - inodeBits)
	rootItemSize    = 239 // without what later kernels added
	rootRefSize     = 18  // before the name
	defaultName     = "default"
	checksumObjects = 1<<64 - 10
)

// subvolume is a subvolume or a snapshot.
type subvolume struct {
	id    uint64
	index uint64 // distinguishes its inodes from those of others
	tree  treeRoot

	// Where it is: the only name that it has.
	parent, parentDir uint64
	name              string
}

// subvolumes reads the tree of roots. It is safe for concurrent use.
type subvolumes struct {
	device *device

	mu   sync.Mutex // guards the field below
	byID map[uint64]*subvolume
}

// get returns a subvolume. fs.ErrNotExist: there is none of that number.
func (l *subvolumes) get(id uint64) (*subvolume, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.byID[id]; s != nil {
		return s, nil
	}
	s, err := l.read(id)
	if err != nil {
		return nil, fmt.Errorf("subvolume %d: %w", id, err)
	}
	if len(l.byID) == maxSubvolumes {
		return nil, fmt.Errorf("subvolume %d: more than %d subvolumes: the remaining ones are not read", id,
			maxSubvolumes)
	}
	s.index = uint64(len(l.byID))
	l.byID[id] = s
	return s, nil
}

func (l *subvolumes) read(id uint64) (*subvolume, error) {
	d := l.device
	tree, err := d.readRoot(id)
	if err != nil {
		return nil, err
	}
	s := &subvolume{id: id, tree: tree}
	root, err := d.readNode(tree)
	if err != nil {
		return nil, err
	}
	// Each subvolume has a separate root, also if it shares all that is below: else a small image could have a
	// large tree any number of times.
	if root.owner != id {
		return nil, damaged("its root is that of tree %d", root.owner)
	}
	if id == topLevel {
		return s, nil
	}
	c, err := d.seek(d.superblock.roots, key{id, kindRootBackref, 0})
	if err != nil || !c.is(id, kindRootBackref) {
		return s, err // it is in no directory
	}
	b := c.data()
	if len(b) < rootRefSize || len(b) != rootRefSize+int(le.Uint16(b[16:])) {
		return nil, damaged("its name has %d bytes", len(b))
	}
	s.parent, s.parentDir, s.name = c.key().offset, le.Uint64(b), string(b[rootRefSize:])
	return s, nil
}

// readRoot returns the root of a tree that the tree of roots has.
func (d *device) readRoot(id uint64) (treeRoot, error) {
	c, err := d.seekLast(d.superblock.roots, key{id, kindRoot, 1<<64 - 1})
	if err != nil {
		return treeRoot{}, fmt.Errorf("tree of roots: %w", err)
	}
	if !c.is(id, kindRoot) {
		return treeRoot{}, fs.ErrNotExist
	}
	b := c.data()
	if len(b) < rootItemSize {
		return treeRoot{}, damaged("its item has %d bytes", len(b))
	}
	if le.Uint32(b[216:]) == 0 {
		return treeRoot{}, fs.ErrNotExist // it is being deleted
	}
	return treeRoot{address: le.Uint64(b[176:]), generation: le.Uint64(b[160:]), level: b[238]}, nil
}

// defaultSubvolume returns the number of the subvolume that the kernel mounts.
func (d *device) defaultSubvolume() (uint64, error) {
	dir := d.superblock.rootDir
	c, err := d.seek(d.superblock.roots, key{dir, kindDirItem, 0})
	for ; err == nil && c.is(dir, kindDirItem); err = c.next() {
		for b := c.data(); len(b) > 0; {
			e, err := parseDirItem(b)
			if err != nil {
				return 0, fmt.Errorf("default subvolume: %w", err)
			}
			if bytes.Equal(e.name, []byte(defaultName)) {
				return e.location.object, nil
			}
			b = b[e.size:]
		}
	}
	if err != nil {
		return 0, fmt.Errorf("default subvolume: %w", err)
	}
	return topLevel, nil
}
