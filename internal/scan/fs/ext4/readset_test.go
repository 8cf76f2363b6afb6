package ext4

import (
	"bytes"
	"io"
	"io/fs"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// reopen opens the file system of the tree again, with nothing cached.
func (t *tree) reopen() *FS {
	f := *t.f
	f.r = bytes.NewReader(t.b)
	f.pages, f.dirs = inodefs.NewPages(f.r, int64(len(t.b)), 1024), newDirCache()
	f.owners = &inodefs.BlockOwners[uint32]{}
	return &f
}

// A set is unchanged until a byte changes that the operation depends on.
func TestReadSets(t *testing.T) {
	tr := newTree(t)
	tr.folder(2, 2, name(11, 2, "dir"), name(12, 1, "file"))
	tr.folder(11, 2, name(13, 1, "inner"))
	tr.put(12, inodefs.ModeRegular|0o644, flagInline, []byte("content of the file"))
	tr.put(13, inodefs.ModeRegular|0o644, flagInline, []byte("inner content"))
	salt := Salt{1, 2, 3}
	read := func(name string) []byte {
		t.Helper()
		view, set := tr.reopen().NewTracker(salt, nil).Track()
		f, err := view.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(f); err != nil {
			t.Fatal(err)
		}
		return set.Encode()
	}
	all := []Range{{0, int64(len(tr.b))}}
	set := read("dir/inner")
	unchanged := func(salt Salt, changed ...Range) bool {
		return tr.reopen().NewTracker(salt, changed).Unchanged(set)
	}
	if len(set) == 0 || !unchanged(salt) {
		t.Fatalf("%x is changed where nothing is", set)
	}
	inodes := Range{10 * 1024, 100 * 512}
	if !unchanged(salt, inodes) {
		t.Error("changed where only blocks of inodes are written again")
	}
	if unchanged(Salt{9}, inodes) {
		t.Error("unchanged with another salt")
	}
	le.PutUint32(tr.inode(13)[8:], 12345) // the time of the last access
	if !unchanged(salt, inodes) {
		t.Error("changed by an access time")
	}
	le.PutUint16(tr.inode(13), inodefs.ModeRegular|0o600)
	if unchanged(salt, inodes) {
		t.Error("unchanged by other permissions")
	}
	le.PutUint16(tr.inode(13), inodefs.ModeRegular|0o644)
	for i := range set {
		for _, bit := range []byte{1, 0x80} {
			changed := bytes.Clone(set)
			changed[i] ^= bit
			_ = tr.reopen().NewTracker(salt, all).Unchanged(changed) // ends without a panic
			_ = tr.reopen().NewTracker(salt, nil).Unchanged(changed[:i])
		}
	}
}

// Operations that cannot read everything, and those that read too much, have no set.
func TestReadSetOfFailure(t *testing.T) {
	tr := newTree(t)
	tr.folder(2, 2, name(101, 1, "bad"))
	view, set := tr.reopen().NewTracker(Salt{}, nil).Track()
	if _, err := fs.Stat(view, "bad"); err == nil {
		t.Fatal("inode 101 of 100 was read")
	}
	if b := set.Encode(); b != nil {
		t.Errorf("%x", b)
	}
	many := &ReadSet{}
	for i := range int64(maxReadSetItems + 1) {
		many.addRange(i*10, 5)
	}
	if b := many.Encode(); b != nil {
		t.Errorf("a set of %d bytes, above the limit", len(b))
	}
	joined := &ReadSet{}
	for i := range int64(100) {
		joined.addRange(i*10, 10)
	}
	if len(joined.ranges) != 1 {
		t.Errorf("%v", joined.ranges)
	}
}

// A directory whose block another one has got is changed.
func TestReadSetOfSharedBlock(t *testing.T) {
	tr := newTree(t)
	tr.folder(2, 2, name(30, 2, "dir"))
	tr.put(30, inodefs.ModeDir|0o755, 0, nil)
	le.PutUint32(tr.inode(30)[4:], 1024)
	le.PutUint32(tr.inode(30)[40:], 70)
	up := append(record(30, ".", 0), record(2, "..", 0)...)
	copy(tr.b[70*1024:], append(up, record(15, "first", 1000)...))
	tracker := tr.reopen().NewTracker(Salt{}, nil)
	view, set := tracker.Track()
	if _, err := fs.ReadDir(view, "dir"); err != nil {
		t.Fatal(err)
	}
	b := set.Encode()
	if !tr.reopen().NewTracker(Salt{}, nil).Unchanged(b) {
		t.Error("changed")
	}
	if tr.reopen().NewTracker(Salt{}, []Range{{70*1024 + 1023, 1}}).Unchanged(b) {
		t.Error("unchanged by a byte of its block")
	}
	later := tr.reopen()
	if !later.owners.Claim(70, 77) || later.NewTracker(Salt{}, nil).Unchanged(b) {
		t.Error("unchanged, and a block is that of directory 77")
	}
}

// The geometry is the same after a mount, and another one where inodes are elsewhere.
func TestGeometry(t *testing.T) {
	tr := newTree(t)
	sum, err := tr.reopen().Geometry()
	if err != nil {
		t.Fatal(err)
	}
	changed := func(change func(*superblock)) bool {
		f := tr.reopen()
		s := *f.superblock
		f.superblock = &s
		change(&s)
		other, err := f.Geometry()
		return err != nil || other != sum
	}
	if changed(func(s *superblock) { s.incompat |= hasRecovery; s.state = 0; s.label = "new" }) {
		t.Error("changed by a mount")
	}
	if !changed(func(s *superblock) { s.inodeSize = 256 }) || !changed(func(s *superblock) { s.checksumSeed++ }) {
		t.Error("unchanged by other inodes")
	}
	if !changed(func(s *superblock) { s.inodeCount, s.inodesPerGroup = 1<<31, 1 }) {
		t.Error("a geometry of 2^31 groups")
	}
}
