package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs"
	"github.com/buildyard/buildyard/test/rig"
)

// apfsTest is the disk that a Linux kernel wrote, whose list has the sum of every file.
func apfsTest(_ context.Context, s *stage, dir string) (*made, error) {
	f, err := os.Open(filepath.Join(s.shared, "data/disk/apfs_test.img.zst"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	image := filepath.Join(dir, "image")
	if err := writeSparse(image, z); err != nil {
		return nil, err
	}
	want, err := sums(filepath.Join(s.shared, "data/disk/apfs_test.manifest.sha256"))
	if err != nil {
		return nil, err
	}
	return &made{dir: dir, raw: image, compare: func(vols []disk.Volume, r *row) error {
		got := map[string]string{}
		for k, v := range vols {
			files, err := v.Open()
			if err != nil {
				return err
			}
			if err := sumFiles(files, fmt.Sprintf("vol%d/", k+1), got); err != nil {
				return err
			}
		}
		r.All = len(want)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if got[name] != want[name] {
				r.Differences = append(r.Differences,
					fmt.Sprintf("%s: sha256 %q instead of %q", name, got[name], want[name]))
				continue
			}
			r.Equal++
		}
		if len(got) != len(want) {
			r.Differences = append(r.Differences, fmt.Sprintf("%d files", len(got)))
		}
		return nil
	}}, nil
}

// sums reads a list of sha256sum.
func sums(name string) (map[string]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if sum, name, ok := strings.Cut(lines.Text(), "  "); ok {
			out[name] = sum
		}
	}
	return out, lines.Err()
}

// sumFiles adds the sum of every file of a tree.
func sumFiles(fsys fs.FS, prefix string, out map[string]string) error {
	return fs.WalkDir(fsys, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		out[prefix+name], err = sum(fsys, name)
		return err
	})
}

func sum(fsys fs.FS, name string) (string, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// macFile is a file in the list of the disk from a Mac.
type macFile struct {
	Compressed   bool
	Mode         string
	SHA256       string
	Size         int64
	Type, Target string
	Xattrs       map[string]struct {
		SHA256 string
		Size   int
	}
}

// apfsMac is the disk that macOS wrote.
func apfsMac(_ context.Context, s *stage, dir string) (*made, error) {
	f, err := os.Open(filepath.Join(s.shared, "data/disk/apfs_mac_written.img.gz"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	image := filepath.Join(dir, "image")
	if err := writeSparse(image, z); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(s.shared, "data/disk/apfs_mac_written.manifest.json"))
	if err != nil {
		return nil, err
	}
	var want struct {
		Files      map[string]macFile
		VolumeName string
	}
	if err := json.Unmarshal(text, &want); err != nil {
		return nil, err
	}
	return &made{dir: dir, raw: image, compare: func(vols []disk.Volume, r *row) error {
		if len(vols) != 1 || vols[0].Name != want.VolumeName {
			return fmt.Errorf("volumes %+v", vols)
		}
		files, err := vols[0].Open()
		if err != nil {
			return err
		}
		fsys, ok := files.(*apfs.FS)
		if !ok {
			return errors.New("it is not an APFS")
		}
		r.All = len(want.Files)
		for _, name := range slices.Sorted(maps.Keys(want.Files)) {
			if err := want.Files[name].compare(fsys, name); err != nil {
				r.Differences = append(r.Differences, fmt.Sprintf("%s: %v", name, err))
				continue
			}
			r.Equal++
		}
		return nil
	}}, nil
}

// compare compares a file with its entry in the list.
func (m macFile) compare(fsys *apfs.FS, name string) error {
	for key, want := range m.Xattrs {
		b, err := fsys.Xattr(name, key)
		if err != nil {
			return err
		}
		if len(b) != want.Size || fmt.Sprintf("%x", sha256.Sum256(b)) != want.SHA256 {
			return fmt.Errorf("attribute %s has %d bytes, not those of the list", key, len(b))
		}
	}
	if m.Type == "symlink" {
		target, err := fsys.ReadLink(name)
		if err == nil && target != m.Target {
			err = fmt.Errorf("leads to %q instead of %q", target, m.Target)
		}
		return err
	}
	info, err := fsys.Lstat(name)
	if err != nil {
		return err
	}
	compressed, ok := info.Sys().(interface{ Compressed() bool })
	if mode := fmt.Sprintf("0o%o", info.Mode().Perm()); !info.Mode().IsRegular() || mode != m.Mode ||
		info.Size() != m.Size || !ok || compressed.Compressed() != m.Compressed {
		return fmt.Errorf("%v, %d bytes", info.Mode(), info.Size())
	}
	got, err := sum(fsys, name)
	if err == nil && got != m.SHA256 {
		err = fmt.Errorf("sha256 %s instead of %s", got, m.SHA256)
	}
	return err
}

// fsapfsinfo lists every volume; its paths must be those read here.
var fsapfsinfo = witness{"fsapfsinfo agrees", func(ctx context.Context, d *made, r *row) error {
	i, err := disk.OpenImage(d.raw)
	if err != nil {
		return err
	}
	defer func() { _ = i.Close() }()
	parts, err := disk.Partitions(i, i.Size())
	if err != nil {
		return err
	}
	vols, _, err := disk.Volumes(i, i.Size())
	if err != nil {
		return err
	}
	ours, theirs := map[string]bool{}, map[string]bool{}
	for _, v := range vols {
		if err := paths(v, ours); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if err := askFsapfsinfo(ctx, d, p, theirs); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		if r.All++; ours[name] {
			r.Equal++
		} else {
			r.Differences = append(r.Differences, fmt.Sprintf("only fsapfsinfo has %q", name))
		}
	}
	for name := range ours {
		if !theirs[name] {
			r.Differences = append(r.Differences, fmt.Sprintf("fsapfsinfo does not have %q", name))
		}
	}
	return nil
}}

// paths adds all paths of a volume, each with its partition.
func paths(v disk.Volume, out map[string]bool) error {
	files, err := v.Open()
	if err != nil {
		return err
	}
	return fs.WalkDir(files, ".", func(name string, _ fs.DirEntry, err error) error {
		if name != "." {
			out[fmt.Sprintf("%d/%s", v.Partition, name)] = true
		}
		return err
	})
}

func askFsapfsinfo(ctx context.Context, d *made, p disk.Partition, names map[string]bool) error {
	out, err := rig.Output(ctx, d.dir, "fsapfsinfo", "-o", fmt.Sprint(p.Start), "-H", d.raw)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		if _, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "}/"); ok && name != "" &&
			strings.HasPrefix(line, "/{") {
			names[fmt.Sprintf("%d/%s", p.Index, name)] = true
		}
	}
	return nil
}
