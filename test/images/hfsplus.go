package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
	"github.com/buildyard/buildyard/internal/scan/fs/hfsplus/hfsplustest"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
	"github.com/buildyard/buildyard/test/rig"
)

// hfsSubject is a volume that the kernel of a guest fills from a directory.
type hfsSubject struct {
	entries int
	volume  hfsplustest.Volume
	table   bool // in an Apple partition map
}

func (x hfsSubject) make(ctx context.Context, _ *stage, dir string) (*made, error) {
	tree, image := filepath.Join(dir, "tree"), filepath.Join(dir, "image")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return nil, err
	}
	if err := treetest.Make(tree, x.entries); err != nil {
		return nil, err
	}
	if err := keepNames(tree, x.volume.IsExact); err != nil {
		return nil, err
	}
	x.volume.Name, x.volume.Size = "Filled", ext4Size
	err := rig.MakeHFSPlus(image, x.volume)
	if err == nil {
		err = rig.FillHFSPlus(ctx, image, tree, scatter)
	}
	if err == nil {
		_, err = rig.Output(ctx, tree, "sh", "-ec", scatter)
	}
	var want treetest.List
	if err == nil {
		want, err = treetest.ListDir(tree)
	}
	if err == nil && x.table {
		image, err = onAppleMap(dir, image)
	}
	if err != nil {
		return nil, err
	}
	return &made{dir: dir, raw: image, compare: func(vols []disk.Volume, r *row) error {
		if len(vols) != 1 || vols[0].Format != "hfsplus" || (vols[0].Partition == 0) == x.table ||
			vols[0].Name != "Filled" {
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
		equal, diffs := treetest.Differences(want, got)
		r.Equal, r.All = equal, len(want)
		r.Differences = append(r.Differences, diffs...)
		return nil
	}}, nil
}

// keepNames removes what the file system cannot have: names that are not in UTF-8, those that differ in case alone from
// another one, and, by Linux, those with a character of more than 16 bits.
func keepNames(tree string, isExact bool) error {
	seen := map[string]bool{}
	return filepath.WalkDir(tree, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		folded := strings.ToLower(p)
		isWide := strings.ContainsFunc(p, func(r rune) bool { return r > 0xffff })
		if utf8.ValidString(p) && !isWide && (isExact || !seen[folded]) {
			seen[folded] = true
			return nil
		}
		if d.IsDir() {
			return fmt.Errorf("%q: a directory has a name that is not for HFS+", p)
		}
		return os.Remove(p) //nolint:gosec // the tree is our own
	})
}

const hfsSector = 512 // a block of HFS+ has one or several

// scatter writes two files in turns, so that each has many extents.
const scatter = `i=0
while [ $i -lt 200 ]; do
  printf '%4096d' $i >>scattered1
  printf '%8192d' $i >>scattered2
  sync
  i=$((i + 1))
done
touch -d @1234567890 scattered1 scattered2`

// onAppleMap puts a volume on a disk with an Apple partition map.
func onAppleMap(dir, image string) (string, error) {
	const before, behind = 1 << 20, 1 << 20
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
	err = disktest.WriteAppleMap(f, size, 512,
		disktest.Part{Type: disktest.AppleHFS, Name: "disk image", Start: before, Length: ext4Size})
	return name, errors.Join(err, f.Close())
}

// sevenZip writes all regular files, whose bytes must be those read here. It writes no names of linked files, other
// characters for some in names, and not the files for which Linux leaves blocks allocated: those that end with a block.
var sevenZip = witness{"7-Zip agrees", func(ctx context.Context, d *made, r *row) error {
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
	ours, err := treetest.ListFS(files)
	if err != nil {
		return err
	}
	to := filepath.Join(d.dir, "seven")
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(to)
	const run = `7z x -thfs -y "$1" >/dev/null 2>&1; [ $? -le 2 ]` // 2: some files are not written
	if _, err := rig.Output(ctx, to, "sh", "-c", run, "sh", d.raw); err != nil {
		return err
	}
	theirs, err := treetest.ListDir(filepath.Join(to, "Filled"))
	if err != nil {
		return err
	}
	for name, it := range ours {
		if !it.Mode.IsRegular() || it.Twin != "" || strings.HasPrefix(name, "names/") || it.Size%hfsSector == 0 {
			continue
		}
		r.All++
		if got := theirs[name]; got.Size != it.Size || got.Sum != it.Sum {
			r.Differences = append(r.Differences,
				fmt.Sprintf("%q: 7-Zip writes %d bytes, we read %d", name, got.Size, it.Size))
			continue
		}
		r.Equal++
	}
	return nil
}}
