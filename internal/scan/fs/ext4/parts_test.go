package ext4

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

var le = binary.LittleEndian

// Superblocks are accepted up to the limits of the format, and refused beyond them.
func TestLimitsOfSuperblock(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *superblock)
		want   string // in the error; "" = it is accepted
	}{
		"as it is":           {func(*superblock) {}, ""},
		"every feature":      {func(s *superblock) { s.incompat = supportedFeatures }, ""},
		"an unknown feature": {func(s *superblock) { s.incompat = 1 << 18 }, "unsupported ext4 features (0x40000)"},
		"all inodes":         {func(s *superblock) { s.inodeCount = 4 * 32 }, ""},
		"too many inodes":    {func(s *superblock) { s.inodeCount = 4*32 + 1 }, "129 inodes in 4 groups"},
		"the root alone":     {func(s *superblock) { s.inodeCount = 2 }, ""},
		"no root":            {func(s *superblock) { s.inodeCount = 1 }, "has 1 inodes"},
		"no blocks behind":   {func(s *superblock) { s.blockCount = 1 }, "has 1 blocks"},
		"a part of a group":  {func(s *superblock) { s.blockCount, s.inodeCount = 2, 32 }, ""},
		"inode of a block":   {func(s *superblock) { s.inodeSize = 1024 }, ""},
		"inode of two":       {func(s *superblock) { s.inodeSize = 2048 }, "inodes have 2048 bytes"},
		"least inode":        {func(s *superblock) { s.inodeSize = 128 }, ""},
		"smaller inode":      {func(s *superblock) { s.inodeSize = 64 }, "inodes have 64 bytes"},
		"odd inode":          {func(s *superblock) { s.inodeSize = 192 }, "inodes have 192 bytes"},
		"largest descriptor": {func(s *superblock) { s.descriptorSize = 1024 }, ""},
		"larger descriptor":  {func(s *superblock) { s.descriptorSize = 2048 }, "descriptors of groups have 2048"},
		"smaller descriptor": {func(s *superblock) { s.descriptorSize = 16 }, "descriptors of groups have 16"},
		"odd descriptor":     {func(s *superblock) { s.descriptorSize = 48 }, "descriptors of groups have 48"},
		"most groups":        {func(s *superblock) { s.blocksPerGroup, s.blockCount = 1<<19, 1+1<<51 }, ""},
		"more groups": {func(s *superblock) {
			s.blocksPerGroup, s.blockCount = 1<<19,
				2+1<<51
		}, "4294967297 groups"},
		"most blocks": {func(s *superblock) { s.blocksPerGroup, s.blockCount = 1<<31, 1<<52 }, ""},
		"more blocks": {func(s *superblock) {
			s.blocksPerGroup, s.blockCount = 1<<31,
				1+1<<52
		}, "has 4503599627370497 blocks"},
	} {
		s := superblock{
			inodeCount: 100, blockCount: 1 + 4*256, firstBlock: 1, blockSize: 1024, blocksPerGroup: 256,
			inodesPerGroup: 32,
			inodeSize:      256, descriptorSize: 32,
		}
		c.change(&s)
		if err := s.checkSupported(); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Copies of the superblock are in the groups that the format names.
func TestCopies(t *testing.T) {
	all := func(s *superblock) (out []uint32) {
		for group := range uint32(130) {
			if s.hasSuperblockCopy(group) {
				out = append(out, group)
			}
		}
		return out
	}
	sparse := []uint32{0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125}
	if got := all(&superblock{roCompat: roSparseSuper}); !slices.Equal(got, sparse) {
		t.Errorf("with sparse_super: %v", got)
	}
	if got := all(&superblock{}); len(got) != 130 {
		t.Errorf("without: %v", got)
	}
	if got := all(&superblock{
		roCompat: roSparseSuper, compat: compatSparse2, backupGroups: [2]uint32{6, 99},
	}); !slices.Equal(got,
		[]uint32{0, 6, 99}) {
		t.Errorf("with sparse_super2: %v", got)
	}
}

// Group descriptors follow the superblock, or with meta_bg are in the first group of those that
// they describe.
func TestDescriptors(t *testing.T) {
	small := superblock{
		blockSize: 1024, firstBlock: 1, blocksPerGroup: 8192, descriptorSize: 32,
		roCompat: roSparseSuper,
	}
	large := superblock{blockSize: 4096, blocksPerGroup: 32768, descriptorSize: 64, roCompat: roSparseSuper}
	meta := func(s superblock, first uint32) superblock {
		s.incompat, s.firstMetaGroup = hasMetaGroups, first
		return s
	}
	shifted := meta(small, 0)
	shifted.firstBlock = 0
	for _, c := range []struct {
		s     superblock
		group uint32
		want  int64
	}{
		{small, 0, 2048},
		{small, 1, 2048 + 32},
		{small, 32, 3072},
		{large, 0, 4096},
		{large, 65, 2*4096 + 64},
		{meta(small, 0), 0, 2 * 1024},
		{meta(small, 0), 33, (1+32*8192)*1024 + 32},
		{meta(small, 0), 32 * 3, (1 + 32*3*8192) * 1024},
		{meta(small, 2), 33, 3*1024 + 32},
		{meta(small, 2), 64, (1 + 64*8192) * 1024},
		{meta(large, 0), 0, 4096},
		{shifted, 0, 2 * 1024},
		{meta(large, 0), 81 * 64, 81 * 64 * 32768 * 4096},
	} {
		if got := c.s.descriptorOffset(c.group); got != c.want {
			t.Errorf("group %d of %+v: %d, want %d", c.group, c.s, got, c.want)
		}
	}
	every := meta(small, 0) // each group has a copy, which the descriptors follow
	every.roCompat = 0
	if got := every.descriptorOffset(64); got != (2+64*8192)*1024 {
		t.Errorf("behind a copy: %d", got)
	}
}

// An inode of a real image, changed at one offset, decodes as documented.
func TestParseInode(t *testing.T) {
	f := &FS{superblock: &superblock{blockSize: 1024, inodeCount: 100}}
	raw := func(size int, change func(b []byte)) []byte {
		b := make([]byte, size)
		le.PutUint16(b, inodefs.ModeRegular|0o644)
		change(b)
		return b
	}
	nothing := func([]byte) {}
	for name, c := range map[string]struct {
		raw         []byte
		large       bool // directories may be
		size, nanos int64
		seconds     int64
		want        string
	}{
		"least":            {raw: raw(128, nothing)},
		"no room for more": {raw: raw(130, func(b []byte) { b[128] = 4 })},
		"more":             {raw: raw(256, func(b []byte) { b[128] = 128 })},
		"too much more":    {raw: raw(256, func(b []byte) { b[128] = 132 }), want: "size 132 of its extra fields"},
		"odd more":         {raw: raw(256, func(b []byte) { b[128] = 30 }), want: "size 30 of its extra fields"},
		"size":             {raw: raw(128, func(b []byte) { le.PutUint32(b[4:], 7) }), size: 7},
		"large file":       {raw: raw(128, func(b []byte) { b[108] = 1 }), size: 1 << 32},
		"largest file":     {raw: raw(128, func(b []byte) { le.PutUint32(b[108:], 1024) }), size: 1024 << 32},
		"too large": {raw: raw(128,
			func(b []byte) { le.PutUint32(b[108:], 1024); b[4] = 1 }), want: "it has 4398046511105 bytes"},
		"below zero": {raw: raw(128,
			func(b []byte) { b[111] = 0x80 }), want: "it has 9223372036854775808 bytes"},
		"small folder": {raw: raw(128, func(b []byte) { le.PutUint16(b, inodefs.ModeDir); b[108] = 1 })},
		"large folder": {raw: raw(128,
			func(b []byte) { le.PutUint16(b, inodefs.ModeDir); b[108] = 1 }), large: true, size: 1 << 32},
		"link has no more": {raw: raw(128,
			func(b []byte) { le.PutUint16(b, inodefs.ModeLink); b[108] = 1 }), large: true},
		"time":        {raw: raw(128, func(b []byte) { le.PutUint32(b[16:], 99) }), seconds: 99},
		"before 1970": {raw: raw(128, func(b []byte) { le.PutUint32(b[16:], 1<<32-1) }), seconds: -1},
		"after 2038": {raw: raw(256, func(b []byte) { b[128] = 12; b[136] = 1 | 5<<2 }), seconds: 1 <<
			32, nanos: 5},
		"no time behind":    {raw: raw(256, func(b []byte) { b[128] = 8; b[136] = 1 | 5<<2 })},
		"no time but bytes": {raw: raw(128, func(b []byte) { b[100] = 9 })},
	} {
		f.superblock.incompat = 0
		if c.large {
			f.superblock.incompat = hasLargeDir
		}
		n, err := f.parseInode(7, c.raw)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
			continue
		}
		if err != nil || n.size != c.size || n.mtime.Unix() != c.seconds || int64(n.mtime.Nanosecond()) != c.nanos ||
			n.ID() != 7 {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
	}
}

// blocksOf is a file system of blocks of 1 KiB in memory.
func blocksOf(count int) (*FS, []byte) {
	b := make([]byte, count*1024)
	s := &superblock{blockSize: 1024, blockCount: uint64(count), inodeCount: 100, inodesPerGroup: 100}
	r := bytes.NewReader(b)
	return &FS{r: r, superblock: s, pages: inodefs.NewPages(r, int64(len(b)),
		1024), dirs: newDirCache(), owners: &inodefs.BlockOwners[uint32]{}}, b
}

// Maps of blocks, as old file systems have them, are read as a walk over pointers reads them.
func TestMappedBlocks(t *testing.T) {
	const per = 256
	f, b := blocksOf(400)
	r := rand.New(rand.NewPCG(7, 7))
	n := &inode{number: 3}
	free := uint32(300) // blocks below are data
	var fill func(table []byte, level int)
	fill = func(table []byte, level int) {
		for at := 0; at < len(table); at += 4 {
			switch {
			case level == 0 && r.IntN(4) > 0:
				place := uint32(1 + r.IntN(200))
				if at > 0 && r.IntN(4) > 0 {
					place = le.Uint32(table[at-4:]) + 1
				}
				le.PutUint32(table[at:], min(place, 299))
			case level > 0 && free < 399 && r.IntN(20) == 0:
				le.PutUint32(table[at:], free)
				free++
				fill(b[int(free-1)*1024:][:1024], level-1)
			}
		}
	}
	fill(n.blockMap[:48], 0)
	for level := 1; level <= 3; level++ {
		le.PutUint32(n.blockMap[44+4*level:], free)
		free++
		fill(b[int(free-1)*1024:][:1024], level-1)
	}
	naive := func(block uint64) uint32 {
		if block < 12 {
			return le.Uint32(n.blockMap[4*block:])
		}
		block -= 12
		span := uint64(per)
		level := 1
		for block >= span {
			block, span, level = block-span, span*per, level+1
		}
		place := le.Uint32(n.blockMap[44+4*level:])
		for ; level > 0 && place != 0; level-- {
			span /= per
			place = le.Uint32(b[uint64(place)*1024+block/span%per*4:])
		}
		return place
	}
	const most = 12 + per + per*per + per*per*per
	blocks := []uint64{0, 11, 12, 12 + per - 1, 12 + per, 12 + per + per*per - 1, 12 + per + per*per, most - 1}
	for range 3000 {
		blocks = append(blocks, r.Uint64N(12+per), 12+per+r.Uint64N(per*per), r.Uint64N(most))
	}
	for _, block := range blocks {
		got, err := f.findRun(n, block)
		if err != nil {
			t.Fatal(err)
		}
		if !got.contains(block) || got.contains(got.fileBlock+got.count) ||
			got.fileBlock > 0 && got.contains(got.fileBlock-1) {
			t.Fatalf("block %d: %+v", block, got)
		}
		for k := block; k < min(got.fileBlock+got.count, block+300); k++ {
			want := uint64(naive(k))
			if got.diskBlock != 0 && got.diskBlock+k-got.fileBlock != want || got.diskBlock == 0 && want != 0 {
				t.Fatalf("block %d of %+v lies at %d", k, got, want)
			}
		}
	}
	for _, block := range []uint64{most, maxFileBlocks} {
		if _, err := f.findRun(n, block); !errors.Is(err, ErrDamaged) {
			t.Errorf("block %d: %v", block, err)
		}
	}
}

// node writes a node of a tree of extents.
func node(b []byte, depth int, entries ...[3]uint64) {
	le.PutUint16(b, extentMagic)
	le.PutUint16(b[2:], uint16(len(entries)))
	le.PutUint16(b[6:], uint16(depth))
	for k, e := range entries {
		at := b[12+12*k:]
		le.PutUint32(at, uint32(e[0]))
		if depth == 0 { // first, length, place
			le.PutUint16(at[4:], uint16(e[1]))
			le.PutUint32(at[8:], uint32(e[2]))
			continue
		}
		le.PutUint32(at[4:], uint32(e[2]))
	}
}

// Trees of extents return the run around a block; holes and unwritten extents read as zeros.
func TestExtents(t *testing.T) {
	f, b := blocksOf(100)
	n := &inode{number: 3, flags: flagExtents}
	const unwritten = maxExtentBlocks
	node(n.blockMap[:], 1, [3]uint64{10, 0, 90}, [3]uint64{100, 0, 91}, [3]uint64{1000, 0, 92})
	node(b[90*1024:][:1024], 0, [3]uint64{10, 5, 20}, [3]uint64{15, 5, 40}, [3]uint64{30, 5 + unwritten, 50})
	node(b[91*1024:][:1024], 0, [3]uint64{100, 10, 60})
	node(b[92*1024:][:1024], 0)
	for _, c := range []struct {
		block uint64
		want  blockRun
	}{
		{0, blockRun{0, 10, 0}},
		{9, blockRun{9, 1, 0}},
		{10, blockRun{10, 5, 20}},
		{14, blockRun{10, 5, 20}},
		{15, blockRun{15, 5, 40}},
		{19, blockRun{15, 5, 40}},
		{20, blockRun{20, 10, 0}},
		{30, blockRun{30, 5, 0}},
		{35, blockRun{35, 65, 0}},
		{99, blockRun{99, 1, 0}},
		{100, blockRun{100, 10, 60}},
		{110, blockRun{110, 890, 0}},
		{1000, blockRun{1000, maxFileBlocks - 1000, 0}},
		{maxFileBlocks - 1, blockRun{maxFileBlocks - 1, 1, 0}},
	} {
		if got, err := f.findRun(n, c.block); err != nil || got != c.want {
			t.Errorf("block %d: %+v, %v, want %+v", c.block, got, err, c.want)
		}
	}
	flat := func(entries ...[3]uint64) *inode {
		n := &inode{number: 3, flags: flagExtents}
		node(n.blockMap[:], 0, entries...)
		return n
	}
	deep := flat()
	le.PutUint16(deep.blockMap[6:], 6)
	full := flat([3]uint64{0, 1, 99})
	longest, err := f.findRun(flat([3]uint64{0, maxExtentBlocks, 1}), 0)
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("more blocks than there are: %+v, %v", longest, err)
	}
	if r, err := f.findRun(full, 0); err != nil || r.diskBlock != 99 {
		t.Errorf("the last block: %+v, %v", r, err)
	}
	if r, err := f.findRun(flat([3]uint64{0, 1, 1}, [3]uint64{1, 1, 2}, [3]uint64{2, 1, 3}, [3]uint64{3, 1, 4}),
		3); err != nil || r.diskBlock != 4 {
		t.Errorf("a full node: %+v, %v", r, err)
	}
	for name, n := range map[string]*inode{
		"at block 0":    flat([3]uint64{0, 1, 0}),
		"behind all":    flat([3]uint64{0, 1, 100}),
		"over the end":  flat([3]uint64{0, 2, 99}),
		"too deep":      deep,
		"a node at 0":   {number: 3, flags: flagExtents, blockMap: [60]byte{0x0a, 0xf3, 1, 0, 4, 0, 1}},
		"without magic": {number: 3, flags: flagExtents},
	} {
		if r, err := f.findRun(n, 0); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "inode 3") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	// The start of the next extent in the upper node limits those in the nodes below.
	twisted := &inode{number: 3, flags: flagExtents}
	node(twisted.blockMap[:], 1, [3]uint64{10, 0, 90}, [3]uint64{12, 0, 91})
	if r, err := f.findRun(twisted, 11); err != nil || r != (blockRun{10, 5, 20}) {
		t.Errorf("%+v, %v", r, err)
	}
}

// A node in a separate block has a checksum after the space for entries, where the file system has
// checksums.
func TestSumOfExtents(t *testing.T) {
	const fit = (1024-4)/12 - 1 // entries
	for name, c := range map[string]struct {
		most uint16
		add  uint32
		bad  bool
	}{"right": {fit, 0, false}, "wrong": {fit, 1, true}, "fewer": {fit - 1, 0, false}, "over the end": {fit +
		1, 0, true}, "far behind": {60000, 0, true}} {
		f, b := blocksOf(100)
		f.superblock.roCompat = roMetaChecksums
		n := &inode{number: 3, flags: flagExtents}
		node(n.blockMap[:], 1, [3]uint64{0, 0, 90})
		block := b[90*1024:][:1024]
		node(block, 0, [3]uint64{0, 5, 20})
		le.PutUint16(block[4:], c.most)
		if tail := 12 * (int(c.most) + 1); tail <= 1020 {
			le.PutUint32(block[tail:], checksum(f.checksumSeed(n), block[:tail])+c.add)
		}
		if r, err := f.findRun(n, 0); (err != nil) != c.bad ||
			err != nil && !strings.Contains(err.Error(), "checksum") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		node(n.blockMap[:], 1, [3]uint64{0, 0, 500})
		if _, err := f.findRun(n, 0); !errors.Is(err, ErrDamaged) {
			t.Errorf("a node that is nowhere: %v", err)
		}
	}
}
