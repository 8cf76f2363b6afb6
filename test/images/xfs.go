package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
	"github.com/buildyard/buildyard/test/rig"
)

// xfsSubject is a file system that mkfs.xfs makes and the kernel fills from a directory, or mkfs.xfs for forms that
// new kernels do not mount.
type xfsSubject struct {
	entries int
	options []string
	table   bool // on a partition of a disk
	listed  bool // mkfs.xfs fills it, which needs a name without white space
}

func (x xfsSubject) make(ctx context.Context, _ *stage, dir string) (*made, error) {
	tree, image := filepath.Join(dir, "tree"), filepath.Join(dir, "image")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return nil, err
	}
	if err := treetest.Make(tree, x.entries); err != nil {
		return nil, err
	}
	want, err := x.write(ctx, dir, tree, image)
	if err == nil {
		_, err = rig.Output(ctx, dir, sbin("xfs_repair"), "-n", "-f", image)
	}
	if err == nil && x.table {
		image, err = onTable(dir, image)
	}
	if err != nil {
		return nil, err
	}
	return &made{dir: dir, raw: image, compare: func(vols []disk.Volume, r *row) error {
		if len(vols) != 1 || vols[0].Format != "xfs" || (vols[0].Partition == 0) == x.table {
			return fmt.Errorf("volumes %+v", vols)
		}
		files, err := vols[0].Open()
		if err != nil {
			return err
		}
		got, err := treetest.ListFS(files)
		if err != nil {
			return err
		}
		if x.listed {
			got.ForgetTimes()
		}
		equal, diffs := treetest.Differences(want, got)
		r.Equal, r.All = equal, len(want)
		r.Differences = append(r.Differences, diffs...)
		return nil
	}}, nil
}

// write makes the file system of a tree, and returns what it has.
func (x xfsSubject) write(ctx context.Context, dir, tree, image string) (treetest.List, error) {
	if !x.listed {
		if err := rig.FormatXFS(ctx, image, ext4Size, x.options...); err != nil {
			return nil, err
		}
		if err := treetest.Fill(ctx, image, tree, "true"); err != nil {
			return nil, err
		}
		return treetest.ListDir(tree)
	}
	text, want, err := treetest.XFSProto(tree)
	if err != nil {
		return nil, err
	}
	proto := filepath.Join(dir, "proto")
	if err := os.WriteFile(proto, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return want, rig.FormatXFS(ctx, image, ext4Size, append(slices.Clone(x.options), "-p", proto)...)
}

// xfsDB lists every directory, and the mode and size of every inode. They must be those read here.
var xfsDB = witness{"xfs_db agrees", func(ctx context.Context, d *made, r *row) error {
	i, err := disk.OpenImage(d.raw)
	if err != nil {
		return err
	}
	defer func() { _ = i.Close() }()
	vols, _, err := disk.Volumes(i, i.Size())
	if err != nil || len(vols) != 1 {
		return fmt.Errorf("%d volumes, %w", len(vols), err)
	}
	q := xfsQuestions{want: map[string]int{}}
	files, err := vols[0].Open()
	if err != nil {
		return err
	}
	root, err := fs.Stat(files, ".")
	if err != nil {
		return err
	}
	q.addInode(root)
	list, err := fs.ReadDir(files, ".")
	if err != nil {
		return err
	}
	if err := q.walk(list); err != nil {
		return err
	}
	theirs, err := q.ask(ctx, d)
	if err != nil {
		return err
	}
	r.All = len(theirs)
	for line, n := range theirs {
		if q.want[line] != n {
			r.Differences = append(r.Differences,
				fmt.Sprintf("xfs_db has %q %d times, we %d", line, n, q.want[line]))
			continue
		}
		r.Equal++
	}
	for line := range q.want {
		if theirs[line] == 0 {
			r.Differences = append(r.Differences, fmt.Sprintf("xfs_db does not have %q", line))
		}
	}
	return nil
}}

// xfsQuestions are commands for xfs_db, and the answers that are expected.
type xfsQuestions struct {
	commands strings.Builder
	inodes   []uint64 // those asked for, in this order
	want     map[string]int
}

// xfsKinds are the kinds of files: in modes, and as xfs_db names them.
var xfsKinds = map[fs.FileMode]struct {
	mode uint32
	name string
}{
	0: {0o100000, "regular"}, fs.ModeDir: {0o40000, "directory"}, fs.ModeSymlink: {0o120000, "symlink"},
	fs.ModeNamedPipe: {0o10000, "fifo"},
}

func idOf(info fs.FileInfo) uint64 { return info.Sys().(interface{ ID() uint64 }).ID() }

// addInode asks for the mode and size of an inode, and the entries of a directory.
func (q *xfsQuestions) addInode(info fs.FileInfo) {
	id, mode := idOf(info), xfsKinds[info.Mode().Type()].mode|uint32(info.Mode().Perm())
	q.inodes = append(q.inodes, id)
	q.want[fmt.Sprintf("%d: mode %o, %d bytes", id, mode, info.Size())]++
	fmt.Fprintf(&q.commands, "inode %d\nprint core.mode core.size\n", id)
	if info.IsDir() {
		q.commands.WriteString("ls\n")
	}
}

func (q *xfsQuestions) walk(list []fs.DirEntry) error {
	for _, e := range list {
		info, err := e.Info()
		if err != nil {
			return err
		}
		q.want[fmt.Sprintf("%d %s %s", idOf(info), xfsKinds[e.Type()].name, e.Name())]++
		q.addInode(info)
		if !e.IsDir() {
			continue
		}
		below, err := e.(interface{ ReadDir() ([]fs.DirEntry, error) }).ReadDir()
		if err == nil {
			err = q.walk(below)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// xfsAnswer matches the mode and size of an inode, and the beginning of an entry: inode, type, length of the name,
// which follows and may contain anything but a slash.
var xfsAnswer = regexp.MustCompile(`(?m)core\.mode = (\d+)\s+core\.size = (\d+)$|` +
	`^(?:xfs_db> )*\d+ +(\d+) +(\w+) +0x[0-9a-f]+ +(\d+) `)

// ask returns the answers of xfs_db.
func (q *xfsQuestions) ask(ctx context.Context, d *made) (map[string]int, error) {
	script := filepath.Join(d.dir, "commands")
	if err := os.WriteFile(script, []byte(q.commands.String()), 0o600); err != nil {
		return nil, err
	}
	out, err := rig.Output(ctx, d.dir, "sh", "-c", `exec "$1" -r -f "$2" <"$3"`, "sh", sbin("xfs_db"), d.raw, script)
	if err != nil {
		return nil, err
	}
	lines, inodes := map[string]int{}, q.inodes
	for {
		m := xfsAnswer.FindStringSubmatchIndex(out)
		if m == nil {
			break
		}
		group := func(k int) string { return out[m[2*k]:m[2*k+1]] }
		end := m[1]
		if m[2] >= 0 {
			if len(inodes) == 0 {
				return nil, errors.New("xfs_db has more inodes than it was asked for")
			}
			lines[fmt.Sprintf("%d: mode %s, %s bytes", inodes[0], strings.TrimLeft(group(1), "0"), group(2))]++
			inodes = inodes[1:]
		} else {
			length, err := strconv.Atoi(group(5))
			if err != nil || length > len(out)-end {
				return nil, fmt.Errorf("xfs_db has a name of %s bytes", group(5))
			}
			if name := out[end : end+length]; name != "." && name != ".." {
				lines[fmt.Sprintf("%s %s %s", group(3), group(4), name)]++
			}
			end += length
		}
		out = out[end:]
	}
	return lines, nil
}
