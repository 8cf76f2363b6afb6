package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
	"github.com/buildyard/buildyard/test/rig"
)

// ext4Subject is a file system that mke2fs creates from a directory.
type ext4Subject struct {
	entries int
	options []string
	table   bool // on a partition of a disk
	index   bool // with large directories indexed, as a kernel does
	inline  bool // with small files in their inodes
}

const (
	ext4Size = 512 << 20
	lostDir  = "lost+found"
)

func (e ext4Subject) make(ctx context.Context, _ *stage, dir string) (*made, error) {
	tree, image := filepath.Join(dir, "tree"), filepath.Join(dir, "image")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return nil, err
	}
	if err := treetest.Make(tree, e.entries); err != nil {
		return nil, err
	}
	want, err := treetest.ListDir(tree)
	if err != nil {
		return nil, err
	}
	args := append([]string{"-q", "-F", "-E", "root_owner=0:0"}, e.options...)
	if _, err := rig.Output(ctx, dir, sbin("mke2fs"),
		append(args, "-d", tree, image, fmt.Sprintf("%dk", ext4Size>>10))...); err != nil {
		return nil, err
	}
	if e.inline {
		if err := lengthen(ctx, dir, image, want); err != nil {
			return nil, err
		}
	}
	if e.index {
		// Its exit code reports that it changed something.
		_, _ = rig.Output(ctx, dir, sbin("e2fsck"), "-fyD", image)
	}
	if _, err := rig.Output(ctx, dir, sbin("e2fsck"), "-fn", image); err != nil && !e.inline {
		return nil, err
	}
	if e.table {
		if image, err = onTable(dir, image); err != nil {
			return nil, err
		}
	}
	return &made{dir: dir, raw: image, compare: func(vols []disk.Volume, r *row) error {
		if len(vols) != 1 || vols[0].Format != "ext4" || (vols[0].Partition == 0) == e.table {
			return fmt.Errorf("volumes %+v", vols)
		}
		files, err := vols[0].Open()
		if err != nil {
			return err
		}
		return compareTree(want, files, r)
	}}, nil
}

// sbin returns the path of a program of e2fsprogs, which may be outside of a user's PATH.
func sbin(name string) string {
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if p := filepath.Join(dir, name); exists(p) {
			return p
		}
	}
	return name
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// lengthen repairs the sizes of files that end with a hole, which mke2fs loses where small files
// are in inodes.
func lengthen(ctx context.Context, dir, image string, want treetest.List) error {
	for name, it := range want {
		if strings.HasPrefix(name, "sparse/") && it.Mode.IsRegular() {
			set := fmt.Sprintf("set_inode_field %s size %d", name, it.Size)
			if _, err := rig.Output(ctx, dir, sbin("debugfs"), "-w", "-R", set, image); err != nil {
				return err
			}
		}
	}
	return nil
}

// onTable puts a file system on a disk with a partition table.
func onTable(dir, image string) (string, error) {
	const before, behind = 8 << 20, 1 << 20
	name := filepath.Join(dir, "disk")
	from, err := os.Open(image)
	if err != nil {
		return "", err
	}
	defer from.Close()
	const size = before + ext4Size + behind
	zeros := io.LimitReader(zeroes{}, before)
	if err := writeSparse(name, io.MultiReader(zeros, from, io.LimitReader(zeroes{}, behind))); err != nil {
		return "", err
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	err = disktest.WriteGPT(f, size, 512,
		disktest.Part{Type: disktest.Linux, Name: "root", Start: before, Length: ext4Size})
	return name, errors.Join(err, f.Close())
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// compareTree compares all of a tree.
func compareTree(want treetest.List, fsys fs.FS, r *row) error {
	got, err := treetest.ListFS(fsys, lostDir)
	if err != nil {
		return err
	}
	equal, diffs := treetest.Differences(want, got)
	r.Equal, r.All = equal, len(want)
	r.Differences = append(r.Differences, diffs...)
	return nil
}

// debugfs lists every directory; each of its entries must be in the tree, with its inode, mode and
// size, and vice versa.
var debugfs = witness{"debugfs agrees", func(ctx context.Context, d *made, r *row) error {
	i, err := disk.OpenImage(d.raw)
	if err != nil {
		return err
	}
	defer func() { _ = i.Close() }()
	vols, _, err := disk.Volumes(i, i.Size())
	if err != nil || len(vols) != 1 {
		return fmt.Errorf("%d volumes, %w", len(vols), err)
	}
	files, err := vols[0].Open()
	if err != nil {
		return err
	}
	ours, dirs, err := inodes(files)
	if err != nil {
		return err
	}
	theirs, err := askDebugfs(ctx, d, dirs)
	if err != nil {
		return err
	}
	r.All = len(theirs)
	for line, n := range theirs {
		if ours[line] != n {
			r.Differences = append(r.Differences, fmt.Sprintf("debugfs has %q %d times, we %d", line, n, ours[line]))
			continue
		}
		r.Equal++
	}
	for line := range ours {
		if theirs[line] == 0 {
			r.Differences = append(r.Differences, fmt.Sprintf("debugfs does not have %q", line))
		}
	}
	return nil
}}

// inodes counts the entries of a tree: inode, mode, name and size; and lists the inodes of
// directories.
func inodes(fsys fs.FS) (lines map[string]int, dirs []uint64, err error) {
	const root = 2
	lines, dirs = map[string]int{}, []uint64{root}
	var walk func(dir fs.ReadDirFS, name string, list []fs.DirEntry) error
	walk = func(fsys fs.ReadDirFS, name string, list []fs.DirEntry) error {
		for _, e := range list {
			info, err := e.Info()
			if err != nil {
				return err
			}
			id := info.Sys().(interface{ ID() uint64 }).ID()
			if !e.IsDir() {
				lines[fmt.Sprintf("%d %o %s %d", id, info.Mode().Perm(), e.Name(), info.Size())]++
				continue
			}
			lines[fmt.Sprintf("%d %o %s", id, info.Mode().Perm(), e.Name())]++
			dirs = append(dirs, id)
			below, err := e.(interface{ ReadDir() ([]fs.DirEntry, error) }).ReadDir()
			if err != nil {
				return err
			}
			if err := walk(fsys, name+"/"+e.Name(), below); err != nil {
				return err
			}
		}
		return nil
	}
	list, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, nil, err
	}
	return lines, dirs, walk(fsys.(fs.ReadDirFS), "", list)
}

// entry matches an entry in the output of debugfs: inode, mode, owner, group, name, size; a name
// may contain anything but a slash.
var entry = regexp.MustCompile(`(?s)/(\d+)/(\d{6})/\d+/\d+/([^/]*)/(\d*)/\n`)

func askDebugfs(ctx context.Context, d *made, dirs []uint64) (map[string]int, error) {
	var commands strings.Builder
	for _, id := range dirs {
		fmt.Fprintf(&commands, "ls -p <%d>\n", id)
	}
	script := filepath.Join(d.dir, "commands")
	if err := os.WriteFile(script, []byte(commands.String()), 0o600); err != nil {
		return nil, err
	}
	out, err := rig.Output(ctx, d.dir, sbin("debugfs"), "-f", script, d.raw)
	if err != nil {
		return nil, err
	}
	lines := map[string]int{}
	for _, m := range entry.FindAllStringSubmatch(out+"\n", -1) {
		mode, name := strings.TrimLeft(m[2][3:], "0"), m[3]
		switch {
		case m[1] == "0", name == ".", name == "..":
			continue
		case strings.HasPrefix(m[2], "04"):
			lines[fmt.Sprintf("%s %s %s", m[1], mode, name)]++
		default:
			lines[fmt.Sprintf("%s %s %s %s", m[1], mode, name, m[4])]++
		}
	}
	return lines, nil
}
