package btrfs

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// makeSubvolumes are made in a mounted file system: nested ones, a snapshot of one that has another, one in a directory
// that is renamed later, one that is removed, and many, whose roots need several nodes.
const makeSubvolumes = `btrfs -q subvolume create root
btrfs -q subvolume create home
btrfs -q subvolume create root/nested
mkdir root/usr root/etc home/user
echo nested >root/nested/file
echo usr >root/usr/file
echo home >home/user/file
ln root/usr/file root/etc/hard
mkdir snapshots
btrfs -q subvolume snapshot -r root snapshots/first
btrfs -q subvolume snapshot root snapshots/second
echo changed >root/usr/file
echo more >snapshots/second/more
btrfs -q subvolume create gone
btrfs -q subvolume delete gone
mkdir -p many/below
for k in $(seq 100); do btrfs -q subvolume create many/below/$k; echo $k >many/below/$k/number; done
mv many moved
mv moved/below/7 moved/seven
`

// Subvolumes and snapshots are directories, as the kernel shows them.
func TestSubvolumes(t *testing.T) {
	treetest.BtrfsProgram(t, "mkfs.btrfs")
	image := filepath.Join(t.TempDir(), "image")
	format(t, image, 1<<30)
	want := fill(t, image, makeSubvolumes)
	f := open(t, image)
	treetest.Same(t, want, f)
	for path, content := range map[string]string{
		"snapshots/first/usr/file": "usr\n", "root/usr/file": "changed\n", "root/etc/hard": "changed\n",
		"root/nested/file": "nested\n", "moved/seven/number": "7\n", "moved/below/8/number": "8\n",
	} {
		if b, err := fs.ReadFile(f, path); err != nil || string(b) != content {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	for _, dir := range []string{"snapshots/first/nested", "snapshots/second/nested"} {
		if list, err := f.ReadDir(dir); err != nil || len(list) > 0 {
			t.Errorf("%s: %v, %v", dir, list, err)
		}
	}
	ids := map[uint64]string{}
	for path := range want {
		if st, err := f.Lstat(path); err != nil {
			t.Error(err)
		} else if id := st.Sys().(*inode).ID(); st.IsDir() && ids[id] != "" {
			t.Errorf("%s and %s have the ID %d", path, ids[id], id)
		} else {
			ids[id] = path
		}
	}
	if rest, err := f.Rest(); rest != nil || err != nil {
		t.Errorf("there is a rest: %v", err)
	}
}

// The default subvolume is the root, and the rest is a tree of its own without it.
func TestDefaultSubvolume(t *testing.T) {
	treetest.BtrfsProgram(t, "mkfs.btrfs")
	image, whole := filepath.Join(t.TempDir(), "image"), t.TempDir()
	format(t, image, 1<<30)
	fill(t, image, makeSubvolumes+`btrfs -q subvolume set-default "$(btrfs inspect-internal rootid root)" .
cp -a . '`+whole+`'`)
	want := fill(t, image, "true") // as the kernel mounts it
	if _, ok := want["nested/file"]; !ok {
		t.Fatalf("the kernel mounts another subvolume: %d names", len(want))
	}
	f := open(t, image)
	treetest.Same(t, want, f)
	rest, err := f.Rest()
	if err != nil || rest == nil {
		t.Fatalf("no rest: %v", err)
	}
	all := treetest.Listed(t, whole)
	for path := range all {
		if rel, err := filepath.Rel("root", path); err == nil && path != "root" && filepath.IsLocal(rel) {
			delete(all, path)
		}
	}
	if _, ok := all["home/user/file"]; !ok {
		t.Fatal(fmt.Sprint("nothing is left: ", len(all)))
	}
	treetest.Same(t, all, rest)
}

// A file system that was not unmounted has what fsync wrote in a log tree, which is only named.
func TestLogTree(t *testing.T) {
	treetest.BtrfsProgram(t, "mkfs.btrfs")
	image := filepath.Join(t.TempDir(), "image")
	format(t, image, 256<<20)
	fill(t, image, `echo first >file
sync -f .
echo second >other
sync other
cp --sparse=always "$IMAGE" "$IMAGE.copy"`)
	f := open(t, image+".copy")
	if notes := f.Notes(); len(notes) != 1 || notes[0] !=
		"it was not unmounted: what is only in its log tree is not seen" {
		t.Errorf("notes: %q", notes)
	}
	if b, err := fs.ReadFile(f, "file"); err != nil || string(b) != "first\n" {
		t.Errorf("%q, %v", b, err)
	}
}
