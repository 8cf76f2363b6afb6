package apfs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/fs/apfs/keybag"
)

const (
	containerMagic = 0x4253584e // "NXSB"

	minBlockSize   = 4096
	maxBlockSize   = 65536
	nodeCacheBytes = 8 << 20 // bytes of nodes in each generation of the cache

	maxVolumes          = 100
	maxRingBlocks       = 1 << 16 // blocks in the ring of checkpoints
	maxCheckpointsTried = 64      // checkpoints

	featureFusion          = 0x100
	keybagField            = 1296    // of a superblock
	notContiguous          = 1 << 31 // flag of a number of blocks: the ring is in several parts
	superblockSearchBlocks = 64      // blocks that are searched for a lost ring
)

// Container is an APFS container in the state of its newest good checkpoint. It is safe for
// concurrent use.
type Container struct {
	device       *device
	xid          uint64
	id           [16]byte
	keybag       keybag.Place
	volumes      []*Volume
	lostVolumes  []error // of volumes that cannot be read
	truncatedErr error   // of an image that ends before its container
	notes        []string
}

// superblock is what is read of a container's superblock.
type superblock struct {
	block uint64 // where it was found
	xid   uint64

	blockSize   uint32
	blockCount  uint64
	id          [16]byte
	keybag      keybag.Place // of the container; no blocks: it has none
	features    uint64
	ringBlock   uint64
	ringLength  uint32
	omapBlock   uint64
	volumeIDs   []uint64
	checksummed bool
}

// parseSuperblock reads a superblock; ok is false where there is none.
func parseSuperblock(b []byte, block uint64) (s superblock, ok bool) {
	if len(b) < 1024 || le.Uint32(b[32:]) != containerMagic {
		return s, false
	}
	s = superblock{
		block: block, xid: le.Uint64(b[16:]),
		blockSize: le.Uint32(b[36:]), blockCount: le.Uint64(b[40:]), features: le.Uint64(b[64:]),
		ringLength: le.Uint32(b[104:]), ringBlock: le.Uint64(b[112:]), omapBlock: le.Uint64(b[160:]),
		id: [16]byte(b[72:]),
	}
	if len(b) >= keybagField+16 {
		s.keybag = keybag.Place{Block: le.Uint64(b[keybagField:]), Count: le.Uint64(b[keybagField+8:])}
	}
	if s.blockSize < minBlockSize || s.blockSize > maxBlockSize || s.blockSize&(s.blockSize-1) != 0 {
		return s, false
	}
	for i := range min(int(le.Uint32(b[180:])), maxVolumes) {
		if id := le.Uint64(b[184+8*i:]); id != 0 {
			s.volumeIDs = append(s.volumeIDs, id)
		}
	}
	return s, true
}

// Open reads the container that fills r, which the caller owns: a partition or a whole image. It
// uses the newest of the checkpoints that have the most of its volumes; Notes describes what it
// passed over, and UnreadableParts the volumes that no checkpoint has.
func Open(r io.ReaderAt, size int64) (*Container, error) {
	c := &Container{}
	hint, err := c.findSuperblock(r, size)
	if err != nil {
		return nil, err
	}
	c.device = &device{
		r: r, size: size, blockSize: int(hint.blockSize), blockCount: hint.blockCount,
	}
	c.device = c.device.withOwnCache()
	if err := c.chooseCheckpoint(c.checkpoints(hint)); err != nil {
		return nil, err
	}
	c.device = c.device.withOwnCache() // a disk may have a thousand containers: what opening one cached is freed
	return c, nil
}

// chooseCheckpoint selects one of the checkpoints, which are sorted, the newest first. A container has the
// volumes that the newest one names: an older one may precede their creation.
func (c *Container) chooseCheckpoint(found []superblock) error {
	found = found[:min(len(found), maxCheckpointsTried)]
	if has := uint64(c.device.size) / uint64(c.device.blockSize); len(found) > 0 && found[0].blockCount > has {
		c.truncatedErr = damaged("the image is cut off: it has %d of %d blocks", has, found[0].blockCount)
	}
	best, fewest, why := -1, math.MaxInt, make([]error, len(found))
	for i, s := range found {
		if why[i] = c.useCheckpoint(s, found[0].volumeIDs); why[i] != nil {
			continue
		}
		if len(c.lostVolumes) < fewest {
			best, fewest = i, len(c.lostVolumes)
		}
		if fewest == 0 {
			break
		}
		why[i] = c.lostVolumes[0]
	}
	switch {
	case len(found) == 0:
		return damaged("it has no checkpoint")
	case best < 0:
		return why[0]
	}
	for i, s := range found[:best] {
		c.addNote("checkpoint %d in block %d is passed over: %v", s.xid, s.block, why[i])
	}
	return c.useCheckpoint(found[best], found[0].volumeIDs)
}

// findSuperblock returns the superblock in block 0, which may be older than the newest one. For a container
// whose start was overwritten it returns one of the first that it finds.
func (c *Container) findSuperblock(r io.ReaderAt, size int64) (superblock, error) {
	for n := range int64(superblockSearchBlocks) {
		b := make([]byte, minBlockSize)
		if _, err := r.ReadAt(b, n*minBlockSize); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return superblock{}, fmt.Errorf("read APFS container: %w", err)
		}
		s, ok := parseSuperblock(b, uint64(n))
		if !ok {
			continue
		}
		if int64(s.blockSize) <= size-n*minBlockSize {
			whole := make([]byte, s.blockSize)
			if _, err := r.ReadAt(whole, n*minBlockSize); err == nil {
				s.checksummed = checksumValid(whole)
			}
		}
		switch {
		case n == 0 && !s.checksummed:
			c.addNote("the superblock in block 0 has a wrong checksum")
		case !s.checksummed:
			continue
		case n > 0:
			c.addNote("block 0 is not a superblock; that in block %d is taken", n)
		}
		return s, nil
	}
	return superblock{}, fmt.Errorf("not an APFS container: %w", damaged("it has no superblock"))
}

// addNote records a message about a readable container for the caller.
func (c *Container) addNote(format string, args ...any) {
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
	blocks, err := c.checkpointRing(hint)
	if err != nil {
		c.addNote("the ring of checkpoints cannot be read: %v", err)
	}
	for _, n := range blocks {
		b, err := c.device.readBlock(n)
		if err != nil {
			c.addNote("%v", err)
			break
		}
		s, ok := parseSuperblock(b, n)
		if !ok {
			continue
		}
		if !checksumValid(b) {
			c.addNote("checkpoint %d in block %d has a wrong checksum", s.xid, n)
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

// checkpointRing lists the blocks that checkpoints are written to in turn.
func (c *Container) checkpointRing(s superblock) ([]uint64, error) {
	count := min(s.ringLength&^notContiguous, maxRingBlocks)
	if s.ringLength&notContiguous == 0 {
		out := make([]uint64, 0, count)
		for i := range uint64(count) {
			if n := s.ringBlock + i; n >= s.ringBlock && n < s.blockCount {
				out = append(out, n)
			}
		}
		return out, nil
	}
	t, err := openTree(c.device, nil, s.ringBlock, 0)
	if err != nil {
		return nil, err
	}
	var out []uint64
	cur, err := t.seek(uintKey(0))
	for ; err == nil && !cur.atEnd(); err = cur.next() {
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

// useCheckpoint switches to a checkpoint, if at least one of its volumes is valid.
func (c *Container) useCheckpoint(s superblock, volumes []uint64) error {
	if s.features&featureFusion != 0 {
		return fmt.Errorf("container on two drives (Fusion Drive): %w", ErrUnsupported)
	}
	c.device.blockCount = s.blockCount
	m, err := openOMap(c.device, s.omapBlock, nil)
	if err != nil {
		return err
	}
	c.xid, c.id, c.keybag, c.volumes, c.lostVolumes = s.xid, s.id, s.keybag, nil, nil
	for _, id := range volumes {
		v, err := c.openVolume(m, id)
		if err != nil {
			c.lostVolumes = append(c.lostVolumes, fmt.Errorf("read volume with object ID %d: %w", id, err))
			continue
		}
		c.volumes = append(c.volumes, v)
	}
	if len(c.volumes) == 0 && len(c.lostVolumes) > 0 {
		return c.lostVolumes[0]
	}
	return nil
}

// openVolume opens one volume by its number.
func (c *Container) openVolume(m *omap, id uint64) (*Volume, error) {
	at, err := m.find(id, c.xid)
	if err != nil {
		return nil, err
	}
	b, err := c.device.readObject(at.block, typeVolume)
	if err != nil {
		return nil, err
	}
	return newVolume(c, b)
}

// Volumes lists the volumes in the order of the container.
func (c *Container) Volumes() []*Volume { return slices.Clone(c.volumes) }

// UnreadableParts describes the unreadable parts of the container, and why: the missing end of a truncated
// image, which may have the newest state, and volumes.
func (c *Container) UnreadableParts() []error {
	lost := slices.Clone(c.lostVolumes)
	if c.truncatedErr != nil {
		lost = append(lost, c.truncatedErr)
	}
	return lost
}

// Notes describes, in sentences, damage that was passed over when the container was opened.
func (c *Container) Notes() []string { return slices.Clone(c.notes) }
