package apfs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

const (
	containerMagic = 0x4253584e // "NXSB"

	minBlock  = 4096
	maxBlock  = 65536
	mostNodes = 8 << 20 // bytes of nodes in each generation of the cache

	mostVolumes     = 100
	mostDescriptors = 1 << 16 // blocks in the ring of checkpoints
	mostTried       = 64      // checkpoints

	featureFusion  = 0x100
	notContiguous  = 1 << 31 // flag of a number of blocks: the ring is in several parts
	lostBlockTries = 64      // blocks that are searched for a lost ring
)

// Container is an APFS container in the state of its newest good checkpoint. It is safe for
// concurrent use.
type Container struct {
	d       *device
	omap    *omap
	xid     uint64
	volumes []*Volume
	lost    []error // of volumes that cannot be read
	cut     error   // of an image that ends before its container
	notes   []string
}

// superblock is what is read of a container's superblock.
type superblock struct {
	block uint64 // where it was found
	xid   uint64

	blockSize   uint32
	blocks      uint64
	features    uint64
	ring        uint64
	ringBlocks  uint32
	omap        uint64
	volumes     []uint64
	checksummed bool
}

// parseSuperblock reads a superblock; ok is false where there is none.
func parseSuperblock(b []byte, block uint64) (s superblock, ok bool) {
	if len(b) < 1024 || le.Uint32(b[32:]) != containerMagic {
		return s, false
	}
	s = superblock{
		block: block, xid: le.Uint64(b[16:]),
		blockSize: le.Uint32(b[36:]), blocks: le.Uint64(b[40:]), features: le.Uint64(b[64:]),
		ringBlocks: le.Uint32(b[104:]), ring: le.Uint64(b[112:]), omap: le.Uint64(b[160:]),
	}
	if s.blockSize < minBlock || s.blockSize > maxBlock || s.blockSize&(s.blockSize-1) != 0 {
		return s, false
	}
	for i := range min(int(le.Uint32(b[180:])), mostVolumes) {
		if id := le.Uint64(b[184+8*i:]); id != 0 {
			s.volumes = append(s.volumes, id)
		}
	}
	return s, true
}

// Open reads the container that fills r, which the caller owns: a partition or a whole image. It
// uses the newest of the checkpoints that have the most of its volumes; Notes describes what it
// passed over, and Lost the volumes that no checkpoint has.
func Open(r io.ReaderAt, size int64) (*Container, error) {
	c := &Container{}
	hint, err := c.hint(r, size)
	if err != nil {
		return nil, err
	}
	c.d = &device{
		r: r, size: size, blockSize: int(hint.blockSize), blocks: hint.blocks,
		nodes: newCache[nodeKey, *node](mostNodes / int(hint.blockSize)),
	}
	if err := c.choose(c.checkpoints(hint)); err != nil {
		return nil, err
	}
	return c, nil
}

// choose selects one of the checkpoints, which are sorted, the newest first. A container has the
// volumes that the newest one names: an older one may precede their creation.
func (c *Container) choose(found []superblock) error {
	found = found[:min(len(found), mostTried)]
	if has := uint64(c.d.size) / uint64(c.d.blockSize); len(found) > 0 && found[0].blocks > has {
		c.cut = damaged("the image is cut off: it has %d of %d blocks", has, found[0].blocks)
	}
	best, fewest, why := -1, math.MaxInt, make([]error, len(found))
	for i, s := range found {
		if why[i] = c.take(s, found[0].volumes); why[i] != nil {
			continue
		}
		if len(c.lost) < fewest {
			best, fewest = i, len(c.lost)
		}
		if fewest == 0 {
			break
		}
		why[i] = c.lost[0]
	}
	switch {
	case len(found) == 0:
		return damaged("it has no checkpoint")
	case best < 0:
		return why[0]
	}
	for i, s := range found[:best] {
		c.note("checkpoint %d in block %d is passed over: %v", s.xid, s.block, why[i])
	}
	return c.take(found[best], found[0].volumes)
}

// hint returns the superblock in block 0, which may be older than the newest one. For a container
// whose start was overwritten it returns one of the first that it finds.
func (c *Container) hint(r io.ReaderAt, size int64) (superblock, error) {
	for n := range int64(lostBlockTries) {
		b := make([]byte, minBlock)
		if _, err := r.ReadAt(b, n*minBlock); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return superblock{}, fmt.Errorf("reading an APFS container: %w", err)
		}
		s, ok := parseSuperblock(b, uint64(n))
		if !ok {
			continue
		}
		if int64(s.blockSize) <= size-n*minBlock {
			whole := make([]byte, s.blockSize)
			if _, err := r.ReadAt(whole, n*minBlock); err == nil {
				s.checksummed = sound(whole)
			}
		}
		switch {
		case n == 0 && !s.checksummed:
			c.note("the superblock in block 0 has a wrong checksum")
		case !s.checksummed:
			continue
		case n > 0:
			c.note("block 0 is not a superblock; that in block %d is taken", n)
		}
		return s, nil
	}
	return superblock{}, fmt.Errorf("this is not an APFS container: %w", damaged("it has no superblock"))
}

// note records a message about a readable container for the caller.
func (c *Container) note(format string, args ...any) {
	if len(c.notes) < 100 {
		c.notes = append(c.notes, fmt.Sprintf(format, args...))
	}
}

// checkpoints lists the superblocks of a container, the newest first.
func (c *Container) checkpoints(hint superblock) []superblock {
	var out []superblock
	if hint.checksummed {
		out = append(out, hint)
	}
	blocks, err := c.ring(hint)
	if err != nil {
		c.note("the ring of checkpoints cannot be read: %v", err)
	}
	for _, n := range blocks {
		b, err := c.d.block(n)
		if err != nil {
			c.note("%v", err)
			break
		}
		s, ok := parseSuperblock(b, n)
		if !ok {
			continue
		}
		if !sound(b) {
			c.note("checkpoint %d in block %d has a wrong checksum", s.xid, n)
			continue
		}
		if s.blockSize == hint.blockSize {
			out = append(out, s)
		}
	}
	// That in block 0 repeats one of the ring: it stays after its equals.
	slices.SortStableFunc(out, func(a, b superblock) int {
		return cmp.Or(cmp.Compare(b.xid, a.xid), cmp.Compare(b.block, a.block))
	})
	return out
}

// ring lists the blocks that checkpoints are written to in turn.
func (c *Container) ring(s superblock) ([]uint64, error) {
	count := min(s.ringBlocks&^notContiguous, mostDescriptors)
	if s.ringBlocks&notContiguous == 0 {
		out := make([]uint64, 0, count)
		for i := range uint64(count) {
			if n := s.ring + i; n >= s.ring && n < s.blocks {
				out = append(out, n)
			}
		}
		return out, nil
	}
	t, err := openTree(c.d, nil, s.ring, 0)
	if err != nil {
		return nil, err
	}
	var out []uint64
	cur, err := t.seek(uintKey(0))
	for ; err == nil && !cur.end(); err = cur.next() {
		v := cur.value()
		if len(v) < 16 {
			return out, damaged("the ring of checkpoints has a piece without place")
		}
		for i := range le.Uint64(v[8:]) {
			if len(out) >= int(count) {
				return out, nil
			}
			out = append(out, le.Uint64(v)+i)
		}
	}
	return out, err
}

// uintKey is a search key of one number.
type uintKey uint64

func (k uintKey) compare(b []byte) int {
	if len(b) < 8 {
		return -1
	}
	return cmp.Compare(le.Uint64(b), uint64(k))
}

// take switches to a checkpoint, if at least one of its volumes is valid.
func (c *Container) take(s superblock, volumes []uint64) error {
	if s.features&featureFusion != 0 {
		return fmt.Errorf("a container over two drives (fusion): %w", ErrUnsupported)
	}
	c.d.blocks = s.blocks
	m, err := openOMap(c.d, s.omap)
	if err != nil {
		return err
	}
	c.omap, c.xid, c.volumes, c.lost = m, s.xid, nil, nil
	for _, id := range volumes {
		v, err := c.volume(id)
		if err != nil {
			c.lost = append(c.lost, fmt.Errorf("volume %d cannot be read: %w", id, err))
			continue
		}
		c.volumes = append(c.volumes, v)
	}
	if len(c.volumes) == 0 && len(c.lost) > 0 {
		return c.lost[0]
	}
	return nil
}

// volume opens one volume by its number.
func (c *Container) volume(id uint64) (*Volume, error) {
	at, err := c.omap.find(id, c.xid)
	if err != nil {
		return nil, err
	}
	b, err := c.d.object(at.block, typeVolume)
	if err != nil {
		return nil, err
	}
	return newVolume(c, b)
}

// Volumes lists the volumes in the order of the container.
func (c *Container) Volumes() []*Volume { return slices.Clone(c.volumes) }

// Lost describes the unreadable parts of the container, and why: the missing end of a truncated
// image, which may have the newest state, and volumes.
func (c *Container) Lost() []error {
	lost := slices.Clone(c.lost)
	if c.cut != nil {
		lost = append(lost, c.cut)
	}
	return lost
}

// Notes describes, in sentences, damage that was passed over when the container was opened.
func (c *Container) Notes() []string { return slices.Clone(c.notes) }
