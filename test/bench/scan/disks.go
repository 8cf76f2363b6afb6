package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/scan/disk/udif/udiftest"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/apfstest"
	"github.com/buildyard/buildyard/internal/scan/fs/hfsplus/hfsplustest"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
	"github.com/buildyard/buildyard/test/rig"
)

// Names of the files of forms.
const (
	ext4File  = "ext4.img"
	xfsFile   = "xfs.img"
	btrfsFile = "btrfs.img"
	apfsFile  = "apfs.img"
	hfsFile   = "hfsplus.img"
	vmdkFile  = "disk.vmdk"
	udifFile  = "disk.dmg"
	lvmFile   = "lvm.img"
)

// The sizes of disks. The tree fills most of the first.
const (
	ext4Size  = "3G"
	xfsSize   = 4 << 30
	btrfsSize = 4 << 30
	hfsSize   = 4 << 30
)

// kept returns the directory of a form of the tree, which is next to the tree. It is created if
// missing: creating all takes minutes.
func (b *bench) kept(ctx context.Context, tree string, f form) (string, error) {
	dir := tree + "-" + f.name
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	w := works{tree: tree, ext4: filepath.Join(tree+"-"+forms[0].name, ext4File), to: dir + ".part"}
	if f.name != forms[0].name {
		if _, err := b.kept(ctx, tree, forms[0]); err != nil {
			return "", err
		}
	}
	b.Say("making %s of the tree", f.what)
	if err := os.RemoveAll(w.to); err != nil {
		return "", err
	}
	if err := os.Mkdir(w.to, 0o755); err != nil {
		return "", err
	}
	if err := f.make(ctx, b, w); err != nil {
		return "", errors.Join(err, os.RemoveAll(w.to))
	}
	return dir, os.Rename(w.to, dir)
}

// image returns the source for a file of a form's directory.
func image(name string) func(dir string) []string {
	return func(dir string) []string { return []string{"vm_image:" + filepath.Join(dir, name)} }
}

func makeExt4(ctx context.Context, _ *bench, w works) error {
	_, err := rig.Output(ctx, w.to, "mke2fs", "-q", "-t", "ext4", "-F", "-m", "0", "-d", w.tree, ext4File, ext4Size)
	return err
}

// makeXFS has the kernel write the tree, which needs root.
func makeXFS(ctx context.Context, _ *bench, w works) error {
	name := filepath.Join(w.to, xfsFile)
	if err := rig.FormatXFS(ctx, name, xfsSize); err != nil {
		return err
	}
	return treetest.Fill(ctx, name, w.tree, "true")
}

// makeBtrfs has the kernel write the tree, which needs root.
func makeBtrfs(ctx context.Context, _ *bench, w works) error {
	name := filepath.Join(w.to, btrfsFile)
	if err := rig.FormatBtrfs(ctx, name, btrfsSize); err != nil {
		return err
	}
	return treetest.Fill(ctx, name, w.tree, "true")
}

// makeHFSPlus has the kernel of a guest write the tree, in which names may differ in case alone.
func makeHFSPlus(ctx context.Context, _ *bench, w works) error {
	name := filepath.Join(w.to, hfsFile)
	if err := rig.MakeHFSPlus(name, hfsplustest.Volume{Name: "Tree", Size: hfsSize, IsExact: true}); err != nil {
		return err
	}
	return rig.FillHFSPlus(ctx, name, w.tree, ":")
}

// makeLVM needs root, for loop devices.
func makeLVM(ctx context.Context, _ *bench, w works) error {
	return rig.MakeLVM(ctx, w.ext4, filepath.Join(w.to, lvmFile))
}

// makeVMDK writes the form of disks in use, or that in which they are exported: grains of 64 KiB, compressed with
// zlib.
func makeVMDK(subformat string) func(context.Context, *bench, works) error {
	return func(ctx context.Context, _ *bench, w works) error {
		_, err := rig.Output(ctx, w.to, "qemu-img", "convert", "-f", "raw", "-O", "vmdk", "-o", "subformat="+subformat,
			w.ext4, vmdkFile)
		return err
	}
}

// makeUDIF writes the usual form of hdiutil: chunks of 256 KiB, compressed with zlib.
func makeUDIF(_ context.Context, _ *bench, w works) error {
	from, err := os.Open(w.ext4)
	if err != nil {
		return err
	}
	defer from.Close()
	st, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.Create(filepath.Join(w.to, udifFile))
	if err != nil {
		return err
	}
	err = udiftest.Write(to, from, st.Size(), udiftest.Options{Packing: udiftest.Named("zlib")})
	return errors.Join(err, to.Close())
}

func makeAPFS(ctx context.Context, _ *bench, w works) error {
	return apart(ctx, makingAPFS, filepath.Join(w.to, apfsFile), w.tree)
}

// writeAPFS writes a tree as the data volume of a Mac. It has the whole tree in memory during that.
func writeAPFS(name, tree string) error {
	v := apfstest.Volume{Name: "Macintosh HD - Data", Role: apfstest.Data}
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == tree {
			return err
		}
		f, err := apfsEntry(tree, path, d)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		v.Files = append(v.Files, f)
		return nil
	})
	if err != nil {
		return err
	}
	to, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = apfstest.Write(to, apfstest.Container{Volumes: []apfstest.Volume{v}})
	return errors.Join(err, to.Close())
}

// apfsEntry describes an entry of a tree.
func apfsEntry(tree, path string, d fs.DirEntry) (f apfstest.File, err error) {
	name, err := filepath.Rel(tree, path)
	if err != nil {
		return f, err
	}
	info, err := d.Info()
	if err != nil {
		return f, err
	}
	f = apfstest.File{Path: filepath.ToSlash(name), Mode: uint16(info.Mode().Perm())}
	switch d.Type() {
	case fs.ModeDir:
		f.Mode |= apfstest.Directory
	case fs.ModeSymlink:
		f.Mode |= apfstest.Link
		f.Target, err = os.Readlink(path)
	case 0:
		f.Mode |= apfstest.Regular
		f.Data, err = os.ReadFile(path)
	default:
		err = fmt.Errorf("its type is %s", d.Type())
	}
	return f, err
}
