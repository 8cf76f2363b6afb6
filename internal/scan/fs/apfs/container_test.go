package apfs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/apfs"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/apfstest"
)

func one(name string) []apfstest.File {
	return []apfstest.File{{Path: "name", Data: []byte(name)}}
}

// is fails unless the file "name" of a volume has this content.
func is(t *testing.T, f *apfs.FS, err error, want string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := fs.ReadFile(f, "name"); string(got) != want || err != nil {
		t.Errorf("%q, want %q: %v", got, want, err)
	}
}

func TestVolumes(t *testing.T) {
	group := [16]byte{0xab, 1, 2, 3}
	m, _ := write(t, apfstest.Container{Scattered: true, Blocks: 3000, Volumes: []apfstest.Volume{
		{Name: "Macintosh HD", Role: apfstest.System, Group: group, Files: one("system")},
		{Name: "Data", Role: apfstest.Data, Group: group, Sensitive: true, Files: one("data")},
		{Name: "Preboot", Role: apfstest.Preboot, Files: one("preboot")},
		{
			Name: "Vault", Role: 12 << 6, Encrypted: true, Files: one("secret"),
			Snapshots: []apfstest.Snapshot{{Name: "s"}},
		},
	}})
	c, err := m.open()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range c.Volumes() {
		got = append(got, fmt.Sprint(v.Name(), "|", v.Role(), "|", v.Group(), "|", v.Encrypted(), v.Sealed()))
	}
	want := []string{
		"Macintosh HD|system|AB010203-0000-0000-0000-000000000000|false false",
		"Data|data|AB010203-0000-0000-0000-000000000000|false false",
		"Preboot|preboot||false false",
		"Vault|role-768||true false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for i, name := range []string{"system", "data", "preboot"} {
		f, err := c.Volumes()[i].FS()
		is(t, f, err, name)
	}
	vault := c.Volumes()[3]
	if _, err := vault.FS(); !errors.Is(err, apfs.ErrEncrypted) || !strings.Contains(err.Error(), `"Vault"`) {
		t.Error(err)
	}
	if _, err := vault.SnapshotFS("s"); !errors.Is(err, apfs.ErrEncrypted) {
		t.Error(err)
	}
}

func TestSnapshots(t *testing.T) {
	many := []apfstest.Snapshot{
		{Name: "first", Files: one("first")},
		{Name: "com.apple.os.update-1", Files: one("update")},
		{Name: "last", Files: one("last")},
	}
	for i := range 200 {
		many[2].Files = append(many[2].Files, apfstest.File{Path: fmt.Sprintf("more/%d", i)})
	}
	for want, v := range map[string]apfstest.Volume{
		"live":   {},
		"update": {Sealed: true},
		"last":   {StartAt: "last", Sealed: true},
		"first":  {StartAt: "first"},
	} {
		v.Snapshots, v.Files = many, one("live")
		m, _ := write(t, apfstest.Container{Volumes: []apfstest.Volume{v}})
		c, f := openVolume(t, bytes.NewReader(m.b), int64(len(m.b)))
		is(t, f, nil, want)
		all, err := c.Volumes()[0].Snapshots()
		if err != nil || len(all) != 3 || all[1].Name != "com.apple.os.update-1" ||
			all[1].Created.UnixNano() != 1_600_000_000_000_000_011 {
			t.Errorf("%v, %v", all, err)
		}
		for _, s := range many {
			f, err := c.Volumes()[0].SnapshotFS(s.Name)
			is(t, f, err, string(s.Files[0].Data))
			compare(t, f, s.Files)
		}
		if _, err := c.Volumes()[0].SnapshotFS("none"); !errors.Is(err, apfs.ErrNoSnapshot) {
			t.Error(err)
		}
	}
}

// TestCheckpoints damages structures that the newest checkpoints need.
func TestCheckpoints(t *testing.T) {
	v := []apfstest.Volume{{Name: "v", Files: one("name")}}
	for name, c := range map[string]struct {
		damage func(m *image, l apfstest.Layout)
		notes  string // part of one; "" for none at all
		fails  bool
	}{
		"none": {func(*image, apfstest.Layout) {}, "", false},
		"newest torn": {func(m *image, l apfstest.Layout) {
			m.block(l.Checkpoints[1])[500]++
		}, "wrong checksum", false},
		"newest map": {func(m *image, l apfstest.Layout) {
			m.block(l.OMaps[1])[500]++
		}, "checkpoint 40 in block 4 is passed over", false},
		"newest map, and the newest lies in the lower block": {func(m *image, l apfstest.Layout) {
			older, newest := m.block(l.Checkpoints[0]), m.block(l.Checkpoints[1])
			held := bytes.Clone(older)
			copy(older, newest)
			copy(newest, held)
			m.block(l.OMaps[1])[500]++
		}, "checkpoint 40 in block 2 is passed over", false},
		"block 0 torn": {func(m *image, _ apfstest.Layout) { m.b[500]++ }, "block 0 has a wrong checksum", false},
		"block 0 gone": {func(m *image, _ apfstest.Layout) {
			clear(m.b[:4096])
		}, "block 0 is not a superblock", false},
		"both maps": {func(m *image, l apfstest.Layout) {
			m.block(l.OMaps[0])[500]++
			m.block(l.OMaps[1])[500]++
		}, "", true},
		"all gone":       {func(m *image, _ apfstest.Layout) { clear(m.b[:10*4096]) }, "", true},
		"cut off":        {func(m *image, _ apfstest.Layout) { m.b = m.b[:12*4096] }, "", true},
		"a little left":  {func(m *image, _ apfstest.Layout) { m.b = m.b[:100] }, "", true},
		"nothing at all": {func(m *image, _ apfstest.Layout) { m.b = nil }, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			m, l := write(t, apfstest.Container{Volumes: v})
			c.damage(m, l)
			got, err := m.open()
			if c.fails {
				if !errors.Is(err, apfs.ErrDamaged) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(got.Notes(), "\n"); !strings.Contains(all, c.notes) || c.notes == "" && all != "" {
				t.Errorf("%q", all)
			}
			f, err := got.Volumes()[0].FS()
			is(t, f, err, "name")
		})
	}
}

// TestCutOff reads an image that ends before its container, and expects a report of that: the
// newest state may have been after its end.
func TestCutOff(t *testing.T) {
	m, l := write(t, apfstest.Container{Volumes: []apfstest.Volume{{Name: "v", Files: one("name")}}})
	for _, n := range []uint64{0, l.Checkpoints[0], l.Checkpoints[1]} {
		b := m.block(n)
		binary.LittleEndian.PutUint64(b[40:], 1000)
		apfstest.Seal(b)
	}
	c, err := m.open()
	if err != nil {
		t.Fatal(err)
	}
	if lost := c.UnreadableParts(); len(lost) != 1 || !errors.Is(lost[0], apfs.ErrDamaged) ||
		!strings.Contains(lost[0].Error(), "of 1000 blocks") {
		t.Errorf("%v", lost)
	}
	f, err := c.Volumes()[0].FS()
	is(t, f, err, "name")
}

// TestOldFirstBlock trusts the newest checkpoint about the size of a container, which may
// have become smaller since the first block was written.
func TestOldFirstBlock(t *testing.T) {
	m, _ := write(t, apfstest.Container{Volumes: []apfstest.Volume{{Name: "v", Files: one("name")}}})
	b := m.block(0)
	binary.LittleEndian.PutUint64(b[40:], 1000)
	apfstest.Seal(b)
	c, err := m.open()
	if err != nil {
		t.Fatal(err)
	}
	if lost := c.UnreadableParts(); len(lost) != 0 {
		t.Errorf("%v", lost)
	}
	f, err := c.Volumes()[0].FS()
	is(t, f, err, "name")
}

// TestLostVolume reads the other volumes of a container when one is damaged.
func TestLostVolume(t *testing.T) {
	m, l := write(t, apfstest.Container{
		Volumes: []apfstest.Volume{{Name: "lost", Files: one("lost")}, {Name: "kept", Files: one("kept")}},
	})
	for _, b := range l.Catalogs[0] {
		m.block(b)[3000]++
	}
	c, err := m.open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Volumes()[0].FS(); !errors.Is(err, apfs.ErrDamaged) || !strings.Contains(err.Error(), `"lost"`) {
		t.Error(err)
	}
	f, err := c.Volumes()[1].FS()
	is(t, f, err, "kept")
}

// TestLostSuperblock names a volume that cannot be read, unless an older checkpoint has all
// volumes of the newest one.
func TestLostSuperblock(t *testing.T) {
	// place returns the tree of an object map, and in it the block of the second volume.
	place := func(m *image, omap uint64) (tree, block []byte) {
		tree = m.block(binary.LittleEndian.Uint64(m.block(omap)[48:]))
		return tree, tree[apfstest.BlockSize-40-2*16+8:][:8]
	}
	astray := func(m *image, omap uint64) {
		tree, block := place(m, omap)
		clear(block)
		apfstest.Seal(tree)
	}
	for name, c := range map[string]struct {
		damage      func(m *image, l apfstest.Layout)
		kept, lost  int
		notes, told string // parts
	}{
		"in the newest": {func(m *image, l apfstest.Layout) {
			astray(m, l.OMaps[1])
		}, 2, 0, "checkpoint 40 in block 4 is passed over: read volume with object ID 1027", ""},
		"in both": {func(m *image, l apfstest.Layout) {
			_, block := place(m, l.OMaps[1])
			m.block(binary.LittleEndian.Uint64(block))[100]++
		}, 1, 1, "", "read volume with object ID 1027"},
		"and it was not in the older one": {func(m *image, l apfstest.Layout) {
			astray(m, l.OMaps[1])
			astray(m, l.OMaps[0])
			for _, b := range []uint64{0, l.Checkpoints[0]} {
				clear(m.block(b)[184+8:][:8])
				apfstest.Seal(m.block(b))
			}
		}, 1, 1, "", "read volume with object ID 1027"},
	} {
		m, l := write(t, apfstest.Container{
			Volumes: []apfstest.Volume{{Name: "kept", Files: one("kept")}, {Name: "lost", Files: one("lost")}},
		})
		c.damage(m, l)
		got, err := m.open()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		lost := got.UnreadableParts()
		if len(got.Volumes()) != c.kept || len(lost) != c.lost ||
			c.lost > 0 && (!strings.Contains(lost[0].Error(), c.told) || !errors.Is(lost[0], apfs.ErrDamaged)) {
			t.Errorf("%s: %d volumes, %v", name, len(got.Volumes()), lost)
		}
		if all := strings.Join(got.Notes(), "\n"); !strings.Contains(all, c.notes) || c.notes == "" && all != "" {
			t.Errorf("%s: %q", name, all)
		}
		f, err := got.Volumes()[0].FS()
		is(t, f, err, "kept")
	}
}

// TestLostNodes reads the readable part of a directory whose tree lacks nodes.
func TestLostNodes(t *testing.T) {
	var list []apfstest.File
	for i := range 1000 {
		list = append(list, apfstest.File{Path: fmt.Sprintf("folder/%04d", i), Data: []byte{byte(i)}})
	}
	m, l := write(t, apfstest.Container{Volumes: []apfstest.Volume{{Files: list}}})
	damaged := 0
	for i, b := range l.Catalogs[0] {
		if i%5 == 1 && i < len(l.Catalogs[0])/2 {
			m.block(b)[2000]++
			damaged++
		}
	}
	c, err := m.open()
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.Volumes()[0].FS()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := f.ReadDir("folder")
	if !errors.Is(err, apfs.ErrDamaged) || damaged == 0 {
		t.Errorf("%d nodes are damaged: %v", damaged, err)
	}
	if len(entries) < 500 || len(entries) >= 1000 {
		t.Errorf("%d entries", len(entries))
	}
	read := 0
	for _, e := range entries {
		if b, err := fs.ReadFile(f, "folder/"+e.Name()); err == nil && len(b) == 1 {
			read++
		}
	}
	if read < 400 {
		t.Errorf("%d files", read)
	}
}

// many is a directory of a thousand files, and one within.
func many() []apfstest.File {
	var list []apfstest.File
	for i := range 1000 {
		list = append(list, apfstest.File{Path: fmt.Sprintf("folder/%04d", i)})
	}
	return append(list, apfstest.File{Path: "folder/within/more/x"})
}

// TestLoop makes nodes of a tree be their own children, and the same child many times.
func TestLoop(t *testing.T) {
	for _, same := range []bool{false, true} {
		m, l := write(t, apfstest.Container{Volumes: []apfstest.Volume{{Files: many()}}})
		root := m.block(l.Catalogs[0][len(l.Catalogs[0])-1])
		values := apfstest.BlockSize - 40
		child := bytes.Clone(root[8:16]) // its own number
		if same {
			child = bytes.Clone(root[values-16 : values-8])
		}
		for at := values - 16; root[at] != 0 || root[at+1] != 0; at -= 8 {
			copy(root[at:], child)
		}
		apfstest.Seal(root)
		c, err := m.open()
		if err != nil {
			t.Fatal(err)
		}
		f, err := c.Volumes()[0].FS()
		if err == nil {
			_, err = f.ReadDir("folder")
		}
		if !errors.Is(err, apfs.ErrDamaged) {
			t.Error(err)
		}
	}
}

// TestWithin makes a directory be in a directory below it.
func TestWithin(t *testing.T) {
	m, l := write(t, apfstest.Container{Volumes: []apfstest.Volume{{Files: []apfstest.File{{Path: "outer/inner/x"}}}}})
	leaf := m.block(l.Catalogs[0][0])
	// The entry of "x" becomes one of a directory: that of its grandparent, inode 16.
	at := -1
	for i := range leaf[:len(leaf)-18] {
		if leaf[i] == 18 && leaf[i+16] == 8 && bytes.Equal(leaf[i+1:i+8], make([]byte, 7)) {
			at = i
		}
	}
	if at < 0 {
		t.Fatal("the entry is not there")
	}
	leaf[at], leaf[at+16] = 16, 4
	apfstest.Seal(leaf)
	c, err := m.open()
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.Volumes()[0].FS()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	var bad error
	_ = fs.WalkDir(f, ".", func(_ string, _ fs.DirEntry, err error) error {
		if seen++; err != nil {
			bad = err
		}
		if seen > 50 {
			return fs.SkipAll
		}
		return nil
	})
	if seen > 10 || !errors.Is(bad, apfs.ErrDamaged) {
		t.Errorf("%d entries, %v", seen, bad)
	}
}

func TestFirmlinks(t *testing.T) {
	m, _ := write(
		t, apfstest.Container{Volumes: []apfstest.Volume{{Role: apfstest.System, Sealed: true, Files: []apfstest.File{
			{Path: "usr/share/firmlinks", Data: []byte(
				"/Applications\tApplications\n/usr/local\tusr/local\nnonsense\n/../x\t/y\n")},
			{Path: "Users", Mode: apfstest.Directory |
				0o755, Xattrs: map[string][]byte{"com.apple.fs.firmlink": []byte("Users\x00")}},
			{Path: "Applications/Old.app/Info.plist"},
		}}}})
	_, f := openVolume(t, bytes.NewReader(m.b), int64(len(m.b)))
	got, err := f.Firmlinks()
	want := []apfs.Firmlink{
		{Path: "Applications", Target: "Applications"},
		{Path: "Users", Target: "Users"},
		{Path: "usr/local", Target: "usr/local"},
		{Path: "x", Target: "y"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if list, err := f.ReadDir("Users"); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}
