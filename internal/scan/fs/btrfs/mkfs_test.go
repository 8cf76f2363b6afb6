package btrfs

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

func format(t testing.TB, image string, size int64, options ...string) {
	t.Helper()
	treetest.Format(t, image, size, append([]string{treetest.BtrfsProgram(t, "mkfs.btrfs"), "-q"}, options...)...)
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

// fill mounts an image, runs commands in it, and returns what the kernel then reads there.
func fill(t testing.TB, image, commands string) treetest.List {
	t.Helper()
	view := t.TempDir()
	err := treetest.Fill(t.Context(), image, t.TempDir(), commands+"\ncp -a --sparse=always . '"+view+"'\n")
	if errors.Is(err, treetest.ErrNoMount) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return treetest.Listed(t, view)
}

// In every form of the file system, the files that mkfs.btrfs took from a directory read as they are there.
func TestTreesOfMkfs(t *testing.T) {
	treetest.BtrfsProgram(t, "mkfs.btrfs")
	tree := treetest.NewTree(t, treetest.Least)
	want := treetest.Listed(t, tree)
	trees := map[string][]string{
		"default":    nil,
		"xxhash":     {"--csum", "xxhash"},
		"sha256":     {"--csum", "sha256"},
		"blake2":     {"--csum", "blake2"},
		"single":     {"-m", "single"},
		"dup":        {"-d", "dup"},
		"mixed":      {"--mixed"},
		"other UUID": nil, // changed below
		"nodes 4k":   {"-n", "4096"},
		"nodes 64k":  {"-n", "65536"},
		"with holes": {"-O", "^no-holes"},
		"old":        {"-O", "^extref,^skinny-metadata,^no-holes"},
	}
	for _, name := range fulltest.Some(t, 4, slices.Sorted(maps.Keys(trees))) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits for the disk
			image := filepath.Join(t.TempDir(), "image")
			format(t, image, 1<<30, append(trees[name], "--rootdir", tree)...)
			if name == "other UUID" {
				treetest.Run(t, "", "btrfstune", "-m", image)
			}
			fsys := open(t, image)
			treetest.Same(t, want, fsys)
			if notes := fsys.Notes(); len(notes) > 0 {
				t.Errorf("notes: %q", notes)
			}
		})
	}
}

// changes are made in a mounted file system: space that was allocated and not written, part of an extent that was
// overwritten, extents of two files that are the same, and a directory from which files were removed.
const changes = `fallocate -l 1M unwritten
printf x | dd of=unwritten bs=1 seek=500000 conv=notrunc status=none
fallocate -l 64k empty
seq 100000 >text
sync text
cp --reflink=always text clone
printf changed | dd of=clone bs=1 seek=200001 conv=notrunc status=none
fallocate -p -o 100000 -l 50000 clone
truncate -s 300001 clone
head -c 3000 text >grown
sync grown
truncate -s 1M grown
cp --attributes-only -a text attributes
setfattr -n user.name -v value text || true
mkdir freed
seq 10000 12999 | sed s,^,freed/a-name-of-some-length-, | xargs touch -d @1234567890
seq 10500 12299 | sed s,^,freed/a-name-of-some-length-, | xargs rm
ln text freed/hard
`

// In every form of the file system, the files that a kernel wrote read as that kernel reads them.
func TestTreesOfKernel(t *testing.T) {
	treetest.BtrfsProgram(t, "mkfs.btrfs")
	tree := treetest.NewTree(t, treetest.Least)
	trees := map[string]struct{ options, mount string }{
		"default":        {"", "rw"},
		"zlib":           {"", "compress-force=zlib"},
		"lzo":            {"", "compress-force=lzo"},
		"zstd":           {"", "compress-force=zstd:15"},
		"chosen":         {"--csum xxhash", "compress=zstd"},
		"no sums":        {"-n 4096", "nodatasum"},
		"blake2":         {"--csum blake2 -n 65536 -d dup", "compress=lzo"},
		"sha256":         {"--csum sha256 -O ^no-holes --mixed", "compress=zlib"},
		"not in inodes":  {"", "max_inline=0"},
		"quotas":         {"-R quota", "rw"},
		"nodes of 4 KiB": {"-n 4096", "compress-force=lzo"},
	}
	for _, name := range fulltest.Some(t, 4, slices.Sorted(maps.Keys(trees))) {
		t.Run(name, func(t *testing.T) {
			image := filepath.Join(t.TempDir(), "image")
			format(t, image, 2<<30, strings.Fields(trees[name].options)...)
			want := fill(t, image, "mount -o remount,"+trees[name].mount+" .\ncp -a '"+tree+"/.' .\n"+changes)
			if len(want) < treetest.Least {
				t.Fatalf("%d files", len(want))
			}
			fsys := open(t, image)
			treetest.Same(t, want, fsys)
			if notes := fsys.Notes(); len(notes) > 0 {
				t.Errorf("notes: %q", notes)
			}
		})
	}
}
