package ext4_test

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/ext4"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// format makes a file system of a directory.
func format(t testing.TB, image, tree, size string, options ...string) {
	t.Helper()
	args := append([]string{treetest.ExtProgram(t, "mke2fs"), "-q", "-F", "-E", "root_owner=0:0"}, options...)
	if tree != "" {
		args = append(args, "-d", tree)
	}
	treetest.Run(t, "", append(args, image, size)...)
}

func open(t testing.TB, image string) *ext4.FS {
	t.Helper()
	f, size := treetest.Open(t, image)
	fsys, err := ext4.Open(f, size)
	if err != nil {
		t.Fatal(err)
	}
	return fsys
}

// In every form of the file system, its tree reads as the directory that it was made of.
func TestTreesOfMke2fs(t *testing.T) {
	treetest.ExtProgram(t, "mke2fs")
	tree := treetest.NewTree(t, treetest.Least)
	want := treetest.Listed(t, tree)
	trees := map[string][]string{
		"ext4":        {"-t", "ext4"},
		"ext4 1k":     {"-t", "ext4", "-b", "1024"},
		"ext4 2k":     {"-t", "ext4", "-b", "2048", "-I", "128"},
		"ext4 64k":    {"-t", "ext4", "-b", "65536"},
		"inline":      {"-t", "ext4", "-O", "inline_data"},
		"inline 1k":   {"-t", "ext4", "-b", "1024", "-I", "1024", "-O", "inline_data"},
		"plain":       {"-t", "ext4", "-O", "^metadata_csum,^64bit,^flex_bg"},
		"meta groups": {"-t", "ext4", "-b", "1024", "-g", "2048", "-O", "meta_bg,^resize_inode"},
		"meta groups csum": {
			"-t", "ext4", "-b", "1024", "-g", "2048", "-O", "meta_bg,^resize_inode,metadata_csum,64bit,sparse_super2",
		},
		"seed": {
			"-t", "ext4", "-O", "metadata_csum,metadata_csum_seed", "-U",
			"00000000-1111-2222-3333-444444444444",
		},
		"bigalloc":    {"-t", "ext4", "-O", "bigalloc,metadata_csum", "-C", "65536"},
		"bigalloc 4k": {"-t", "ext4", "-b", "4096", "-O", "bigalloc,metadata_csum", "-C", "65536"},
		"casefold":    {"-t", "ext4", "-O", "casefold"},
		"ext3":        {"-t", "ext3"},
		"ext2":        {"-t", "ext2", "-b", "1024"},
		"ext2 old":    {"-t", "ext2", "-r", "0", "-O", "none"},
		"indexed":     {"-t", "ext4", "-O", "metadata_csum"},
		"indexed 1k":  {"-t", "ext4", "-b", "1024"},
	}
	for _, name := range fulltest.Some(t, 6, slices.Sorted(maps.Keys(trees))) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits for the disk
			if name == "ext2 old" && !supportsOld(t) {
				t.Skip("this mke2fs makes no file systems of revision 0")
			}
			image := filepath.Join(t.TempDir(), "image")
			size := "128M"
			if name == "ext4 64k" {
				size = "512M"
			}
			format(t, image, tree, size, trees[name]...)
			if strings.HasPrefix(name, "inline") {
				lengthen(t, image, want)
			}
			if strings.HasPrefix(name, "indexed") {
				// its exit code is 1 after changes
				_ = exec.Command(treetest.ExtProgram(t, "e2fsck"), "-fyD", image).Run()
			}
			fsys := open(t, image)
			treetest.Same(t, want, fsys, "lost+found")
			if notes := fsys.Notes(); len(notes) > 0 {
				t.Errorf("notes: %q", notes)
			}
		})
	}
}

func supportsOld(t testing.TB) bool {
	image := filepath.Join(t.TempDir(), "image")
	mke2fs := treetest.ExtProgram(t, "mke2fs")
	return exec.Command(mke2fs, "-q", "-F", "-r", "0", "-O", "none", "-t", "ext2", image, "8M").Run() == nil
}

// lengthen repairs the sizes of files that end with a hole: mke2fs loses them where small files are
// in inodes.
func lengthen(t testing.TB, image string, want treetest.List) {
	for name, it := range want {
		if strings.HasPrefix(name, "sparse/") && it.Mode.IsRegular() {
			treetest.Run(t, "", treetest.ExtProgram(t, "debugfs"), "-w", "-R",
				fmt.Sprintf("set_inode_field %s size %d", name, it.Size), image)
		}
	}
}
