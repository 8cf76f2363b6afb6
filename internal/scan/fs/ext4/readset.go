package ext4

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// Tracker reports what operations on a file system read, and whether that is unchanged since an earlier
// Tracker with the same salt and an equal Geometry. It is safe for concurrent use.
//
// A block of inodes changes with every access time in it, so inodes are compared by the fields that
// reading uses. Everything else is compared by its place on the disk.
type Tracker struct {
	fs      *FS
	salt    Salt
	changed []Range
	blocks  *inodefs.Pages // single blocks of inodes: their neighbors are unchanged, and may be far away in a template
}

// Salt is secret to the authors of images, so that they cannot make two inodes look equal. It is kept
// together with the read sets.
type Salt [16]byte

// Range is a range of the file system in bytes.
type Range struct{ Off, Len int64 }

// NewTracker returns a tracker of f. changed are the ranges that differ from the file system of the
// earlier tracker, in order and without overlap; the caller does not change them.
func (f *FS) NewTracker(salt Salt, changed []Range) *Tracker {
	return &Tracker{
		fs: f, salt: salt, changed: changed,
		blocks: inodefs.NewPagesOf(f.r, f.pages.Size(), f.superblock.blockSize),
	}
}

// Track returns a view of the file system, and the set of what is read with it. One goroutine uses them.
func (t *Tracker) Track() (*FS, *ReadSet) {
	set := &ReadSet{salt: t.salt}
	view := *t.fs
	view.reads = set
	return &view, set
}

// ReadSet is what operations on a view read. The nil set records nothing.
type ReadSet struct {
	salt      Salt
	inodes    []inodeUse
	ranges    []Range
	dirBlocks []dirBlockUse
	failed    bool // something could not be read
}

// inodeUse is an inode that was read.
type inodeUse struct {
	number uint32
	digest uint64 // of the fields that reading uses
}

// dirBlockUse is a block of a directory that was read: no other directory may have it.
type dirBlockUse struct {
	block uint64
	dir   uint32
}

// maxReadSetItems limits a set: a file in more pieces is read again each time.
const maxReadSetItems = 1 << 14

func (s *ReadSet) addInode(n *inode) {
	if s == nil || s.isFull() {
		return
	}
	if k := len(s.inodes); k > 0 && s.inodes[k-1].number == n.number {
		return
	}
	s.inodes = append(s.inodes, inodeUse{n.number, n.digest(s.salt)})
}

func (s *ReadSet) addRange(off, length int64) {
	if s == nil || s.isFull() {
		return
	}
	if k := len(s.ranges) - 1; k >= 0 && off >= s.ranges[k].Off && off <= s.ranges[k].Off+s.ranges[k].Len {
		s.ranges[k].Len = max(s.ranges[k].Len, off+length-s.ranges[k].Off)
		return
	}
	s.ranges = append(s.ranges, Range{off, length})
}

func (s *ReadSet) addDirBlock(block uint64, dir uint32) {
	if s != nil && !s.isFull() {
		s.dirBlocks = append(s.dirBlocks, dirBlockUse{block, dir})
	}
}

// addSet adds another set.
func (s *ReadSet) addSet(o *ReadSet) {
	if s == nil || o == nil {
		return
	}
	s.inodes = append(s.inodes, o.inodes...)
	s.ranges = append(s.ranges, o.ranges...)
	s.dirBlocks = append(s.dirBlocks, o.dirBlocks...)
	s.failed = s.failed || o.failed
}

// addFailure records that something could not be read.
func (s *ReadSet) addFailure() {
	if s != nil {
		s.failed = true
	}
}

// sizeBytes returns about how many bytes the set takes.
func (s *ReadSet) sizeBytes() int {
	if s == nil {
		return 0
	}
	return 16 * (len(s.inodes) + len(s.ranges) + len(s.dirBlocks))
}

// isFull reports whether the set holds too much to be kept, and frees it.
func (s *ReadSet) isFull() bool {
	if !s.failed && len(s.inodes)+len(s.ranges)+len(s.dirBlocks) < maxReadSetItems {
		return false
	}
	s.failed = true
	s.inodes, s.ranges, s.dirBlocks = nil, nil, nil
	return true
}

// Encode returns the set for Unchanged; nil when something could not be read or the set is too large.
func (s *ReadSet) Encode() []byte {
	if s.isFull() {
		return nil
	}
	slices.SortFunc(s.inodes, func(a, b inodeUse) int { return cmp.Compare(a.number, b.number) })
	s.inodes = slices.Compact(s.inodes)
	slices.SortFunc(s.ranges, func(a, b Range) int { return cmp.Compare(a.Off, b.Off) })
	slices.SortFunc(s.dirBlocks, func(a, b dirBlockUse) int {
		return cmp.Or(cmp.Compare(a.dir, b.dir), cmp.Compare(a.block, b.block))
	})
	s.dirBlocks = slices.Compact(s.dirBlocks)
	b := make([]byte, 0, 8+12*len(s.inodes)+8*len(s.ranges)+8*len(s.dirBlocks))
	b = binary.AppendUvarint(b, uint64(len(s.inodes)))
	last := uint32(0)
	for _, u := range s.inodes {
		b = binary.AppendUvarint(b, uint64(u.number-last))
		b = binary.LittleEndian.AppendUint64(b, u.digest)
		last = u.number
	}
	b = binary.AppendUvarint(b, uint64(len(s.dirBlocks)))
	for _, u := range s.dirBlocks {
		b = binary.AppendUvarint(b, uint64(u.dir))
		b = binary.AppendUvarint(b, u.block)
	}
	for _, r := range s.ranges { // up to the end
		b = binary.AppendUvarint(b, uint64(r.Off))
		b = binary.AppendUvarint(b, uint64(r.Len))
	}
	return b
}

// Unchanged reports whether everything in an encoded set reads as it did, and no directory has got a block
// of one in the set. It is false for a set that is not valid.
func (t *Tracker) Unchanged(set []byte) bool {
	d := setDecoder{set}
	number := uint64(0)
	for range d.uvarint() {
		number += d.uvarint()
		digest, ok := d.uint64()
		if !ok || number > uint64(t.fs.superblock.inodeCount) || !t.inodeUnchanged(uint32(number), digest) {
			return false
		}
	}
	dirBlocks := d
	size := uint64(t.fs.superblock.blockSize)
	for range d.uvarint() {
		dir, block := d.uvarint(), d.uvarint()
		if d.rest == nil || dir == 0 || dir > uint64(t.fs.superblock.inodeCount) ||
			block >= t.fs.superblock.blockCount || t.isChanged(int64(block*size), int64(size)) {
			return false
		}
	}
	for len(d.rest) > 0 {
		off, length := int64(d.uvarint()), int64(d.uvarint())
		if off < 0 || length < 0 || off+length < off || t.isChanged(off, length) {
			return false
		}
	}
	return d.rest != nil && t.claim(dirBlocks)
}

// claim assigns the blocks of directories of a set that is unchanged, as listing them does.
func (t *Tracker) claim(d setDecoder) bool {
	for range d.uvarint() {
		dir, block := d.uvarint(), d.uvarint()
		if !t.fs.owners.Claim(block, uint32(dir)) {
			return false
		}
	}
	return true
}

// setDecoder decodes a set. rest is nil after a failure.
type setDecoder struct{ rest []byte }

func (d *setDecoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.rest = nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *setDecoder) uint64() (uint64, bool) {
	if len(d.rest) < 8 {
		d.rest = nil
		return 0, false
	}
	v := binary.LittleEndian.Uint64(d.rest)
	d.rest = d.rest[8:]
	return v, true
}

// isChanged reports whether a range has a changed byte.
func (t *Tracker) isChanged(off, length int64) bool {
	k := sort.Search(len(t.changed), func(i int) bool { return t.changed[i].Off+t.changed[i].Len > off })
	return k < len(t.changed) && t.changed[k].Off < off+length
}

// inodeUnchanged reports whether an inode is what it was.
func (t *Tracker) inodeUnchanged(number uint32, digest uint64) bool {
	off, err := t.fs.inodeOffset(number)
	if err != nil {
		return false
	}
	if !t.isChanged(off, t.fs.superblock.inodeSize) {
		return true
	}
	raw, err := t.blocks.Get(off, t.fs.superblock.inodeSize)
	if err != nil {
		return false
	}
	n, err := t.fs.parseInode(number, raw)
	return err == nil && n.digest(t.salt) == digest
}

// usedFlags are the flags of inodes that reading uses.
const usedFlags = flagEncrypted | flagExtents | flagInline | flagCaseFold

// digest identifies the fields of an inode that reading uses: all but the times and the number of names.
func (n *inode) digest(salt Salt) uint64 {
	b := make([]byte, 0, 256)
	le := binary.LittleEndian
	b = append(b, salt[:]...)
	b = le.AppendUint16(b, n.mode)
	b = le.AppendUint32(b, n.generation)
	b = le.AppendUint32(b, n.flags&usedFlags)
	b = le.AppendUint64(b, uint64(n.size))
	b = append(b, n.blockMap[:]...)
	b = append(b, n.inlineAttrs...)
	sum := sha256.Sum256(b)
	return le.Uint64(sum[:])
}

// maxTrackedGroups limits the block groups of a tracked file system: with blocks of 4 KiB, 8 TiB.
const maxTrackedGroups = 1 << 16

// Geometry returns a digest of what all reads depend on and no read set has: the fields of the superblock, and
// the places of all inodes. Read sets are of no use for a file system with another one.
func (f *FS) Geometry() (sum [sha256.Size]byte, err error) {
	s := f.superblock
	groups := (uint64(s.inodeCount) + uint64(s.inodesPerGroup) - 1) / uint64(s.inodesPerGroup)
	if groups > maxTrackedGroups {
		return sum, fmt.Errorf("the file system has %d block groups, the limit is %d", groups, maxTrackedGroups)
	}
	le := binary.LittleEndian
	var b []byte
	for _, v := range []uint64{
		uint64(f.pages.Size()), uint64(s.inodeCount), s.blockCount, uint64(s.firstBlock), uint64(s.blockSize),
		uint64(s.blocksPerGroup), uint64(s.inodesPerGroup), uint64(s.inodeSize), uint64(s.descriptorSize),
		uint64(s.firstMetaGroup), uint64(s.backupGroups[0]), uint64(s.backupGroups[1]), uint64(s.compat),
		uint64(s.incompat &^ hasRecovery), uint64(s.roCompat), uint64(s.checksumSeed),
	} {
		b = le.AppendUint64(b, v)
	}
	for g := range uint32(groups) {
		table, err := f.inodeTableOffset(g)
		if err != nil {
			return sum, err
		}
		b = le.AppendUint64(b, uint64(table))
	}
	return sha256.Sum256(b), nil
}

// EntryRef identifies an entry of a directory, and outlives the program.
type EntryRef struct {
	Name   string
	Inode  uint32
	Parent uint32 // inode of the directory
	Type   fs.FileMode
}

// RefOf returns the reference of an entry that this package returned.
func RefOf(e fs.DirEntry) (EntryRef, error) {
	d, ok := e.(*dirEntry)
	if !ok {
		return EntryRef{}, errors.New("not an entry of this file system")
	}
	return EntryRef{d.EntryName, d.At.inodeNumber, d.At.parentInode, d.EntryType}, nil
}

// Entry returns the entry of a reference; what it reads is read by f.
func (f *FS) Entry(r EntryRef) fs.DirEntry {
	return &dirEntry{EntryName: r.Name, EntryType: r.Type, At: place{f, r.Inode, r.Parent}}
}
