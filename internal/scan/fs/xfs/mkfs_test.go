package xfs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

func format(t testing.TB, image string, size int64, options ...string) {
	t.Helper()
	treetest.Format(t, image, size, append([]string{treetest.XFSProgram(t, "mkfs.xfs"), "-q"}, options...)...)
}

func open(t testing.TB, image string) *FS {
	t.Helper()
	f, size := treetest.Open(t, image)
	fsys, err := Open(f, size)
	if err != nil {
		t.Fatal(err)
	}
	return fsys
}

// In every form of the file system, the files that mkfs.xfs took from a directory read as they are there.
func TestTreesOfMkfs(t *testing.T) {
	treetest.XFSProgram(t, "mkfs.xfs")
	tree := treetest.NewTree(t, treetest.Least)
	list, want, err := treetest.XFSProto(tree)
	if err != nil {
		t.Fatal(err)
	}
	proto := filepath.Join(t.TempDir(), "proto")
	if err := os.WriteFile(proto, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	if len(want) < treetest.Least*9/10 {
		t.Fatalf("only %d files are in the list", len(want))
	}
	trees := map[string][]string{
		"v4":            {"-m", "crc=0", "-n", "ftype=1"},
		"v4 no types":   {"-m", "crc=0", "-n", "ftype=0"},
		"v4 512":        {"-m", "crc=0", "-b", "size=512", "-i", "size=256"},
		"v4 dirs 16k":   {"-m", "crc=0", "-b", "size=1024", "-n", "size=16384"},
		"v4 old":        {"-m", "crc=0", "-i", "attr=1,projid32bit=0", "-l", "lazy-count=0,version=1"},
		"v5":            nil,
		"1k":            {"-b", "size=1024"},
		"2k":            {"-b", "size=2048", "-i", "size=1024"},
		"64k":           {"-b", "size=65536"},
		"dirs 64k":      {"-n", "size=65536"},
		"1k dirs 8k":    {"-b", "size=1024", "-n", "size=8192"},
		"inodes 2k":     {"-i", "size=2048"},
		"not sparse":    {"-i", "sparse=0", "-m", "bigtime=0,reflink=0"},
		"large counts":  {"-i", "nrext64=1"},
		"reverse map":   {"-m", "rmapbt=1,inobtcount=1"},
		"sectors of 4k": {"-s", "size=4096"},
		"many groups":   {"-d", "agcount=12"},
		"ignores case":  {"-n", "version=ci"},
		"other uuid":    {"-m", "uuid=00000000-1111-2222-3333-444444444444"},
	}
	for _, name := range fulltest.Some(t, 6, slices.Sorted(maps.Keys(trees))) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits for the disk
			image := filepath.Join(t.TempDir(), "image")
			format(t, image, 1<<30, append(trees[name], "-p", proto)...)
			fsys := open(t, image)
			got, err := treetest.ListFS(fsys)
			if err != nil {
				t.Fatal(err)
			}
			got.ForgetTimes()
			equal, diffs := treetest.Differences(want, got)
			t.Logf("%d/%d equal, forms %v", equal, len(want), forms(t, fsys))
			for _, d := range diffs[:min(len(diffs), 10)] {
				t.Error(d)
			}
			if notes := fsys.Notes(); len(notes) > 0 {
				t.Errorf("notes: %q", notes)
			}
		})
	}
}

// forms counts the forms of directories and files.
func forms(t testing.TB, f *FS) map[string]int {
	t.Helper()
	out := map[string]int{}
	var walk func(list []fs.DirEntry)
	walk = func(list []fs.DirEntry) {
		for _, e := range list {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			n := info.Sys().(*inode)
			kind := fmt.Sprintf("%v %d", e.Type(), n.form)
			if e.IsDir() && n.form != formLocal {
				r, err := f.findRun(n, 0)
				if err != nil {
					t.Fatal(err)
				}
				b, err := f.pages.Get(r.offset, f.superblock.blockSize)
				if err != nil {
					t.Fatal(err)
				}
				kind += " " + string(b[:4])
			}
			out[kind]++
			if e.IsDir() {
				below, err := e.(*dirEntry).ReadDir()
				if err != nil {
					t.Fatal(err)
				}
				walk(below)
			}
		}
	}
	list, err := f.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	walk(list)
	return out
}

// changes are made in a mounted file system and in the directory that it was filled from: space that was
// allocated and not written, and a directory whose middle blocks were freed.
const changes = `fallocate -l 1M unwritten
printf x | dd of=unwritten bs=1 seek=500000 conv=notrunc status=none
fallocate -l 64k empty
touch -d @1234567890 unwritten empty
mkdir freed
seq 10000 12999 | sed s,^,freed/a-name-of-some-length-, | xargs touch -d @1234567890
seq 10500 12299 | sed s,^,freed/a-name-of-some-length-, | xargs rm
`

// In every form of the file system, the files that a kernel wrote read as they are in the directory.
func TestTreesOfKernel(t *testing.T) {
	treetest.XFSProgram(t, "mkfs.xfs")
	tree := treetest.NewTree(t, 2*treetest.Least)
	before := t.TempDir()
	treetest.Run(t, "", "cp", "-a", tree+"/.", before)
	treetest.Run(t, tree, "sh", "-ec", changes)
	want := treetest.Listed(t, tree)
	trees := map[string][]string{
		"v5":           nil,
		"1k":           {"-b", "size=1024"},
		"64k":          {"-b", "size=65536"},
		"dirs 64k":     {"-n", "size=65536"},
		"not sparse":   {"-i", "sparse=0", "-m", "bigtime=0,reflink=0"},
		"large counts": {"-b", "size=1024", "-i", "nrext64=1", "-m", "rmapbt=1"},
		"many groups":  {"-d", "agcount=12"},
	}
	for _, name := range fulltest.Some(t, 3, slices.Sorted(maps.Keys(trees))) {
		t.Run(name, func(t *testing.T) {
			image := filepath.Join(t.TempDir(), "image")
			format(t, image, 1<<30, trees[name]...)
			err := treetest.Fill(t.Context(), image, before, changes)
			if errors.Is(err, treetest.ErrNoMount) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			fsys := open(t, image)
			treetest.Same(t, want, fsys)
			got := forms(t, fsys)
			for _, form := range []string{
				"d--------- 1", "d--------- 2 XDB3", "d--------- 2 XDD3", "---------- 2", "---------- 3",
				"L--------- 1", "L--------- 2", "p--------- 0",
			} {
				// Holes smaller than a block are none, so no file has many extents in large blocks.
				if got[form] == 0 && name != "64k" {
					t.Errorf("no inode has the form %q: %v", form, got)
				}
			}
			if notes := fsys.Notes(); len(notes) > 0 {
				t.Errorf("notes: %q", notes)
			}
		})
	}
}

// A file system that is mounted is read, with a note about its log.
func TestMountedImage(t *testing.T) {
	tree := treetest.NewTree(t, treetest.Least)
	image := filepath.Join(t.TempDir(), "image")
	format(t, image, 1<<30)
	freeze := treetest.XFSProgram(t, "xfs_freeze")
	err := treetest.Fill(t.Context(), image, tree,
		freeze+` -f . && cp --sparse=always "$IMAGE" "$IMAGE.frozen"; `+freeze+` -u .`)
	if errors.Is(err, treetest.ErrNoMount) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	fsys := open(t, image+".frozen")
	treetest.Same(t, treetest.Listed(t, tree), fsys)
	if notes := fsys.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "not unmounted") {
		t.Errorf("notes: %q", notes)
	}
}
