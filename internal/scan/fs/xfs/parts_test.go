package xfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// small is a superblock of 4 groups of 100 blocks of 1 KiB, the last with 50, and inodes of 512 bytes.
func small() *superblock {
	return &superblock{
		version: version4, hasDirs2: true, sectorSize: 512, blockLog: 10, blockSize: 1024, blockCount: 350,
		inodeLog: 9, inodeSize: 512, rootInode: 64, groupCount: 4, groupBlocks: 100, groupLog: 7,
	}
}

// checkError compares an error with a part of its text; "" = none.
func checkError(t testing.TB, name string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

// Superblocks are accepted up to the limits of the format, and refused beyond them.
func TestLimitsOfSuperblock(t *testing.T) {
	v5 := func(s *superblock) { s.version = version5 }
	for name, c := range map[string]struct {
		change func(s *superblock)
		want   string // in the error; "" = it is accepted
	}{
		"as it is":          {func(*superblock) {}, ""},
		"version 5":         {v5, ""},
		"every feature":     {func(s *superblock) { v5(s); s.incompat = supportedIncompat }, ""},
		"metadir":           {func(s *superblock) { v5(s); s.incompat = 0x100 }, "metadir (a directory of metadata"},
		"zoned":             {func(s *superblock) { v5(s); s.incompat = 0x601 }, "zoned, zone_gaps (0x600)"},
		"unknown feature":   {func(s *superblock) { v5(s); s.incompat = 0x8001 }, "unknown features (0x8000)"},
		"features of v4":    {func(s *superblock) { s.features = supportedFeatures }, ""},
		"unknown in v4":     {func(s *superblock) { s.features = 0x18 }, "unknown features (0x10) of version 4"},
		"features in v5":    {func(s *superblock) { v5(s); s.features = 0x18a }, ""},
		"version 3":         {func(s *superblock) { s.version = 3 }, "version 3"},
		"version 6":         {func(s *superblock) { s.version = 6 }, "version 6"},
		"old directories":   {func(s *superblock) { s.hasDirs2 = false }, "directories of version 1"},
		"not finished":      {func(s *superblock) { s.unfinished = true }, "did not finish"},
		"blocks of 512":     {func(s *superblock) { s.blockLog, s.blockSize = 9, 512 }, ""},
		"of 512 in v5":      {func(s *superblock) { v5(s); s.blockLog, s.blockSize = 9, 512 }, "its blocks have 512"},
		"blocks of 256":     {func(s *superblock) { s.blockLog, s.blockSize = 8, 256 }, "its blocks have 256"},
		"blocks of 64k":     {func(s *superblock) { s.blockLog, s.blockSize = 16, 65536 }, ""},
		"blocks of 128k":    {func(s *superblock) { s.blockLog, s.blockSize = 17, 131072 }, "its blocks have 131072"},
		"two block sizes":   {func(s *superblock) { s.blockSize = 4096 }, "4096 bytes, and 2^10"},
		"inodes of 256":     {func(s *superblock) { s.inodeLog, s.inodeSize = 8, 256 }, ""},
		"of 256 in v5":      {func(s *superblock) { v5(s); s.inodeLog, s.inodeSize = 8, 256 }, "its inodes have 256"},
		"inodes of 128":     {func(s *superblock) { s.inodeLog, s.inodeSize = 7, 128 }, "its inodes have 128"},
		"inodes of 2k":      {func(s *superblock) { s.inodeLog, s.inodeSize = 11, 2048 }, "its inodes have 2048"},
		"two inode sizes":   {func(s *superblock) { s.inodeSize = 256 }, "256 bytes, and 2^9"},
		"no group":          {func(s *superblock) { s.groupBlocks = 0 }, "its groups have 0 blocks"},
		"bits of a group":   {func(s *superblock) { s.groupLog = 8 }, "its groups have 100 blocks, and at most 2^8"},
		"too few bits":      {func(s *superblock) { s.groupLog = 6 }, "at most 2^6"},
		"all blocks":        {func(s *superblock) { s.blockCount = 400 }, ""},
		"more blocks":       {func(s *superblock) { s.blockCount = 401 }, "401 blocks in 4 groups"},
		"one of the last":   {func(s *superblock) { s.blockCount = 301 }, ""},
		"none of the last":  {func(s *superblock) { s.blockCount = 300 }, "300 blocks in 4 groups"},
		"dir blocks of 64k": {func(s *superblock) { s.dirBlockLog = 6 }, ""},
		"larger dir blocks": {func(s *superblock) { s.dirBlockLog = 7 }, "blocks of 2^17"},
		"too many": {func(s *superblock) {
			s.groupBlocks, s.groupLog, s.groupCount, s.blockCount = 1<<31, 31, 1<<22, 1<<53
		}, "9007199254740992 blocks"},
	} {
		s := small()
		c.change(s)
		checkError(t, name, s.checkSupported(), c.want)
	}
}

// Blocks and inodes are at the places that their numbers name, and nowhere outside of the file system.
func TestPlaces(t *testing.T) {
	s := small()
	for _, c := range []struct {
		block, count uint64
		want         int64 // 0 = it is refused
	}{
		{0, 1, 0},
		{1, 1, 1 << 10},
		{1, 99, 1 << 10},
		{1, 100, 0},
		{99, 1, 99 << 10},
		{100, 1, 0},
		{127, 1, 0},
		{128, 100, 100 << 10},
		{128, 101, 0},
		{3*128 + 49, 1, 349 << 10},
		{3*128 + 49, 2, 0},
		{3*128 + 50, 1, 0},
		{4 * 128, 1, 0},
		{1<<64 - 1, 1, 0},
		{1, 1<<64 - 1, 0},
		{1 << 63, 1, 0},
	} {
		got, err := s.blockOffset(c.block, c.count)
		if got != c.want || (err != nil) != (c.want == 0) || err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("block %d and %d: %d, %v", c.block, c.count, got, err)
		}
	}
	for number, want := range map[uint64]int64{
		0: 0, 1: 0, 2: 1024, 3: 1024 + 512, 2 * 128: 100 << 10, 2*(3*128+49) + 1: 349<<10 + 512, 2 * (3*128 + 50): 0,
		1<<64 - 1: 0,
	} {
		got, err := s.inodeOffset(number)
		if got != want || (err != nil) != (want == 0) || err != nil &&
			(!errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "which is not in the file system")) {
			t.Errorf("inode %d: %d, %v", number, got, err)
		}
	}
}

// rawInode returns an inode of version 2 with content.
func rawInode(mode uint16, form byte, size int, fork []byte) []byte {
	b := make([]byte, 512)
	copy(b, inodeMagic)
	be.PutUint16(b[2:], mode)
	b[4], b[5] = 2, form
	be.PutUint32(b[16:], 1)
	be.PutUint64(b[56:], uint64(size))
	if form == formExtents {
		be.PutUint32(b[76:], uint32(len(fork)/extentSize))
	}
	copy(b[inodeCoreSize:], fork)
	return b
}

// An inode, changed at one place, decodes as documented.
func TestParseInode(t *testing.T) {
	one := func(b []byte) []byte { return append(b, make([]byte, extentSize)...) }
	for name, c := range map[string]struct {
		change func(b []byte)
		check  func(n *inode) bool
		want   string
	}{
		"as it is": {
			func([]byte) {}, func(n *inode) bool { return n.links == 1 && n.size == 5 && len(n.fork) == 16 }, "",
		},
		"magic":        {func(b []byte) { b[0] = 'X' }, nil, "not an inode"},
		"version 1":    {func(b []byte) { b[4], b[7] = 1, 7 }, func(n *inode) bool { return n.links == 7 }, ""},
		"version 3":    {func(b []byte) { b[4] = 3 }, nil, "has version 3"},
		"version 0":    {func(b []byte) { b[4] = 0 }, nil, "has version 0"},
		"free":         {func(b []byte) { b[2], b[3] = 0, 0 }, nil, "it is free"},
		"size":         {func(b []byte) { b[56] = 0x80 }, nil, "9223372036854775813 bytes"},
		"largest":      {func(b []byte) { b[56] = 0x7f }, func(n *inode) bool { return n.size>>56 == 0x7f }, ""},
		"no extents":   {func(b []byte) { b[79] = 0 }, func(n *inode) bool { return len(n.fork) == 0 }, ""},
		"all extents":  {func(b []byte) { b[79] = 25 }, func(n *inode) bool { return len(n.fork) == 400 }, ""},
		"more extents": {func(b []byte) { b[79] = 26 }, nil, "26 extents in 412 bytes"},
		"2^31 extents": {func(b []byte) { b[76] = 0x80 }, nil, "2147483649 extents"},
		"attributes": {
			func(b []byte) { b[82], b[79] = 51, 25 }, func(n *inode) bool { return len(n.fork) == 400 }, "",
		},
		"less place": {func(b []byte) { b[82], b[79] = 49, 25 }, nil, "25 extents in 392"},
		"behind":     {func(b []byte) { b[82] = 52 }, nil, "attributes are at byte 416 of 412"},
		"local file": {func(b []byte) { b[5] = formLocal }, nil, "the form 1"},
		"local link": {
			func(b []byte) { b[2], b[5] = 0xa0, formLocal }, func(n *inode) bool { return len(n.fork) == 5 }, "",
		},
		"longer link":  {func(b []byte) { b[2], b[5], b[62] = 0xa0, formLocal, 2 }, nil, "517 bytes of content in 412"},
		"link in tree": {func(b []byte) { b[2], b[5] = 0xa0, formTree }, nil, "the form 3"},
		"tree":         {func(b []byte) { b[5] = formTree }, func(n *inode) bool { return len(n.fork) == 412 }, ""},
		"new form":     {func(b []byte) { b[5] = 5 }, nil, "the form 5"},
		"pipe":         {func(b []byte) { b[2], b[5] = 0x10, 0 }, func(n *inode) bool { return n.form == 0 }, ""},
		"realtime":     {func(b []byte) { b[91] = 1 }, func(n *inode) bool { return n.realtime }, ""},
		"time": {
			func(b []byte) { be.PutUint32(b[40:], 1<<32-1); b[47] = 5 },
			func(n *inode) bool { return n.mtime.Equal(time.Unix(-1, 5)) }, "",
		},
	} {
		raw := rawInode(inodefs.ModeRegular|0o644, formExtents, 5, one(nil))
		c.change(raw)
		n, err := small().parseInode(70, raw)
		checkError(t, name, err, c.want)
		if err == nil && (!c.check(n) || n.ID() != 70) || err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
	}
}

// An inode of version 3 has its number, the file system's UUID and a checksum, and more features.
func TestParseCheckedInode(t *testing.T) {
	s := small()
	s.version, s.uuid = version5, [16]byte{1, 2, 3}
	for name, c := range map[string]struct {
		change func(b []byte)
		check  func(n *inode) bool
		want   string
	}{
		"as it is":  {func([]byte) {}, func(n *inode) bool { return len(n.fork) == 16 && n.mtime.Unix() == 9 }, ""},
		"version 2": {func(b []byte) { b[4] = 2 }, nil, "has version 2"},
		"number":    {func(b []byte) { b[159]++ }, nil, "says that it is inode 71"},
		"uuid":      {func(b []byte) { b[160]++ }, nil, "of another file system"},
		"large counts": {func(b []byte) {
			b[127] = flagLargeCounts
			clear(b[76:80])
			b[31] = 2
		}, func(n *inode) bool { return len(n.fork) == 32 }, ""},
		"huge counts": {func(b []byte) { b[127], b[24] = flagLargeCounts, 0xff }, nil, "extents in 336 bytes"},
		"big time": {func(b []byte) {
			b[127] = flagBigTime
			be.PutUint64(b[40:], (1<<31+7)*1e9+3)
		}, func(n *inode) bool { return n.mtime.Equal(time.Unix(7, 3)) }, ""},
	} {
		raw := rawInode(inodefs.ModeRegular|0o644, formExtents, 5, make([]byte, extentSize))
		raw[4], raw[43], raw[159] = 3, 9, 70
		copy(raw[160:], s.uuid[:])
		c.change(raw)
		seal(raw, inodeChecksumOffset)
		n, err := s.parseInode(70, raw)
		checkError(t, name, err, c.want)
		if err == nil && !c.check(n) {
			t.Errorf("%s: %+v", name, n)
		}
		raw[200]++
		_, err = s.parseInode(70, raw)
		if err == nil {
			t.Errorf("%s: a changed inode is read", name)
		}
	}
}

// seal sets the checksum of a block.
func seal(b []byte, at int) {
	clear(b[at : at+4])
	binary.LittleEndian.PutUint32(b[at:], crc32.Checksum(b, castagnoli))
}

// extent makes an extent.
func extent(fileBlock, diskBlock, count uint64, unwritten bool) []byte {
	high := fileBlock<<extentLowBits | diskBlock>>extentHighBits
	if unwritten {
		high |= unwrittenBit
	}
	return be.AppendUint64(be.AppendUint64(nil, high), diskBlock<<extentCount|count)
}

// A block is found in the extents of a file, or in a hole or unwritten space between them.
func TestFindExtent(t *testing.T) {
	list := slices.Concat(extent(2, 128, 3, false), extent(5, 10, 1, true), extent(9, 3*128, 50, false))
	f := &FS{superblock: small()}
	for block, want := range map[uint64]blockRun{
		0: {0, 2, 0}, 1: {1, 1, 0}, 2: {2, 3, 100 << 10}, 4: {2, 3, 100 << 10}, 5: {5, 1, 0}, 6: {6, 3, 0},
		8: {8, 1, 0}, 9: {9, 50, 300 << 10}, 58: {9, 50, 300 << 10}, 59: {59, maxFileBlocks - 59, 0},
	} {
		if got, err := f.findRun(&inode{form: formExtents, fork: list}, block); err != nil || got != want {
			t.Errorf("block %d: %+v, %v, want %+v", block, got, err, want)
		}
	}
	if got, err := f.findRun(&inode{form: formExtents}, 7); err != nil || got != (blockRun{7, maxFileBlocks - 7, 0}) {
		t.Errorf("no extents: %+v, %v", got, err)
	}
	for name, c := range map[string]struct {
		list  []byte
		block uint64
		want  string
	}{
		"far":        {extent(0, 1<<51+5, 1, false), 0, "group 17592186044416"},
		"high bits":  {extent(1<<53, 1<<51, 1<<20, true), 1<<53 + 5, ""},
		"outside":    {extent(0, 3*128+49, 2, false), 1, "block 49 of group 3 and 1 more"},
		"no blocks":  {extent(0, 5, 0, false), 0, "0+0 overlap"},
		"overlap":    {slices.Concat(extent(0, 5, 3, false), extent(2, 9, 1, false)), 1, "0+3 overlap those from"},
		"superblock": {extent(0, 0, 1, false), 0, "block 0 of group 0"},
	} {
		_, err := f.findRun(&inode{number: 70, form: formExtents, fork: c.list}, c.block)
		checkError(t, name, err, c.want)
	}
}

// A tree of extents is descended by its keys, and a node that does not fit its parent is refused.
func TestFindLeaf(t *testing.T) {
	disk := make([]byte, 350<<10)
	node := func(block, level int, entries ...[]byte) {
		b := disk[block<<10:][:1024]
		clear(b)
		copy(b, treeMagic)
		be.PutUint16(b[4:], uint16(level))
		be.PutUint16(b[6:], uint16(len(entries)))
		for k, e := range entries {
			if level == 0 {
				copy(b[treeHeaderSize+k*extentSize:], e)
				continue
			}
			copy(b[treeHeaderSize+k*8:], e[:8])
			copy(b[treeHeaderSize+(1024-treeHeaderSize)/16*8+k*8:], e[8:])
		}
	}
	pair := func(key, child uint64) []byte { return be.AppendUint64(be.AppendUint64(nil, key), child) }
	root := func(level, count int, pairs ...[]byte) []byte {
		b := make([]byte, treeRootHeaderSize+5*16+8) // what is behind the last full pair is not used
		be.PutUint16(b, uint16(level))
		be.PutUint16(b[2:], uint16(count))
		for k, p := range pairs {
			copy(b[4+k*8:], p[:8])
			copy(b[4+5*8+k*8:], p[8:])
		}
		return b
	}
	whole := root(2, 2, pair(3, 20), pair(100, 21))
	build := func() {
		node(20, 1, pair(3, 30), pair(50, 31))
		node(21, 1, pair(100, 32))
		node(30, 0, extent(3, 40, 2, false), extent(9, 50, 4, false))
		node(31, 0, extent(50, 60, 1, false))
		node(32, 0, extent(100, 70, 5, false))
	}
	find := func(fork []byte, kind uint16, block uint64) (blockRun, error) {
		f := &FS{superblock: small(), owners: &inodefs.BlockOwners[uint64]{}}
		f.owners.Claim(30, 99)
		f.pages = inodefs.NewPages(bytes.NewReader(disk), int64(len(disk)), 1024)
		return f.findRun(&inode{number: 70, mode: kind, form: formTree, fork: fork}, block)
	}
	build()
	for block, want := range map[uint64]blockRun{
		0: {0, 3, 0}, 3: {3, 2, 40 << 10}, 4: {3, 2, 40 << 10}, 5: {5, 4, 0}, 12: {9, 4, 50 << 10}, 13: {13, 37, 0},
		50: {50, 1, 60 << 10}, 51: {51, 49, 0}, 104: {100, 5, 70 << 10}, 105: {105, maxFileBlocks - 105, 0},
	} {
		if got, err := find(whole, inodefs.ModeRegular, block); err != nil || got != want {
			t.Errorf("block %d: %+v, %v, want %+v", block, got, err, want)
		}
	}
	for name, c := range map[string]struct {
		change func()
		fork   []byte
		want   string
	}{
		"no root":    {nil, whole[:3], "has no root"},
		"a leaf":     {nil, root(0, 2, pair(3, 20)), "has 0 levels"},
		"too high":   {nil, root(13, 2, pair(3, 20)), "has 13 levels"},
		"level":      {nil, root(3, 1, pair(3, 20)), "has level 1 where it is 2"},
		"no keys":    {nil, root(2, 0), "has 0 entries"},
		"all keys":   {nil, root(2, 5, pair(3, 20), pair(100, 21), pair(101, 0), pair(102, 0), pair(103, 0)), ""},
		"more keys":  {nil, root(2, 6, pair(3, 20)), "has 6 entries of at most 5"},
		"nowhere":    {nil, root(2, 1, pair(3, 127)), "refers to block 127 of group 0"},
		"other key":  {nil, root(2, 1, pair(2, 20)), "begins at block 3 instead of 2"},
		"other leaf": {func() { node(20, 1, pair(3, 31)) }, whole, "begins at block 50 instead of 3"},
		"no node":    {func() { disk[20<<10] = 'X' }, whole, "is not a node"},
		"circle":     {func() { node(20, 1, pair(3, 20)) }, whole, "has level 1 where it is 0"},
		"empty leaf": {
			func() { node(30, 0); copy(disk[30<<10+24:], extent(3, 1, 1, false)) }, whole, "a leaf of its tree",
		},
		"full leaf":   {func() { be.PutUint16(disk[30<<10+6:], 62) }, whole, ""},
		"more in it":  {func() { be.PutUint16(disk[30<<10+6:], 63) }, whole, "has 63 entries"},
		"empty node":  {func() { be.PutUint16(disk[20<<10+6:], 0) }, whole, "has 0 entries"},
		"more in one": {func() { be.PutUint16(disk[20<<10+6:], 63) }, whole, "has 63 entries of at most 62"},
	} {
		build()
		for k := 2; k < 62; k++ { // further extents, for the full leaf
			copy(disk[30<<10+treeHeaderSize+k*extentSize:], extent(uint64(11+2*k), 80, 1, false))
		}
		if c.change != nil {
			c.change()
		}
		_, err := find(c.fork, inodefs.ModeRegular, 4)
		checkError(t, name, err, c.want)
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	build()
	_, err := find(whole, inodefs.ModeDir, 4)
	checkError(t, "the leaf of another directory", err, "that of another directory")
}

// A block belongs to the directory that had it first.
func TestOwners(t *testing.T) {
	f := &FS{superblock: small(), owners: &inodefs.BlockOwners[uint64]{}}
	for _, c := range []struct {
		off  int64
		dir  uint64
		want bool
	}{{512, 2, true}, {512, 2, true}, {512, 3, false}, {1024, 3, true}} {
		if got := f.claimBlock(c.off, c.dir); got != c.want {
			t.Errorf("block at %d for directory %d: %v", c.off, c.dir, got)
		}
	}
	f.superblock.version = version5
	if !f.claimBlock(512, 3) {
		t.Error("blocks of version 5 have owners")
	}
}

func TestKinds(t *testing.T) {
	f := &FS{superblock: small()}
	f.pages = inodefs.NewPages(bytes.NewReader(nil), 0, 1024)
	for kind, want := range map[byte]fs.FileMode{
		1: 0, 2: fs.ModeDir, 3: fs.ModeDevice | fs.ModeCharDevice, 4: fs.ModeDevice, 5: fs.ModeNamedPipe,
		6: fs.ModeSocket, 7: fs.ModeSymlink, 8: fs.ModeDevice | fs.ModeCharDevice, 0: fs.ModeIrregular,
		9: fs.ModeIrregular,
	} {
		if got := f.entryMode(kind, 70); got != want { // its inode is not there
			t.Errorf("kind %d: %v, want %v", kind, got, want)
		}
	}
}
