package disk_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
	"github.com/buildyard/buildyard/internal/scan/disk/udif/udiftest"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// BenchmarkForms walks over 100,000 entries of a file system in every form of a disk.
func BenchmarkForms(b *testing.B) {
	qemu(b)
	dir := b.TempDir()
	tree, image := filepath.Join(dir, "tree"), filepath.Join(dir, "image")
	if err := os.Mkdir(tree, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := treetest.Make(tree, 100_000); err != nil {
		b.Fatal(err)
	}
	run(b, dir, treetest.ExtProgram(b, "mke2fs"), "-q", "-F", "-t", "ext4", "-N", "150000", "-d", tree, image, "1G")
	open := map[string]func() (*disk.Volume, func() error, error){
		"raw": func() (*disk.Volume, func() error, error) { return first(image) },
	}
	for name, o := range map[string][]string{
		"qcow2": {}, "qcow2 zlib": {"-c", "-o", "compression_type=zlib"},
		"qcow2 zstd": {"-c", "-o", "compression_type=zstd"},
	} {
		file := filepath.Join(dir, name)
		run(b, dir, append(append([]string{"qemu-img", "convert", "-O", "qcow2"}, o...), image, file)...)
		open[name] = func() (*disk.Volume, func() error, error) { return first(file) }
	}
	for _, form := range []string{"monolithicSparse", "streamOptimized"} {
		file := filepath.Join(dir, form)
		run(b, dir, "qemu-img", "convert", "-O", "vmdk", "-o", "subformat="+form, image, file)
		open["vmdk "+form] = func() (*disk.Volume, func() error, error) { return first(file) }
	}
	for _, name := range []string{"zlib", "lzfse"} {
		file := filepath.Join(dir, name)
		dmg(b, file, image, udiftest.Named(name))
		open["dmg "+name] = func() (*disk.Volume, func() error, error) { return first(file) }
	}
	for _, depth := range []int{1, 8} {
		base := filepath.Join(dir, fmt.Sprint(depth))
		layers(b, base, image, depth)
		open[fmt.Sprintf("template of %d", depth)] = func() (*disk.Volume, func() error, error) { return firstOf(base) }
	}
	for name, open := range open {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v, done, err := open()
				if err != nil {
					b.Fatal(err)
				}
				if _, _, err := treetest.Visit(filesOf(b, *v)); err != nil {
					b.Fatal(err)
				}
				if err := done(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// dmg writes an image of a disk.
func dmg(b *testing.B, to, image string, packing udiftest.Packing) {
	b.Helper()
	from, err := os.Open(image)
	if err != nil {
		b.Fatal(err)
	}
	defer from.Close()
	st, err := from.Stat()
	if err != nil {
		b.Fatal(err)
	}
	f, err := os.Create(to)
	if err == nil {
		err = errors.Join(udiftest.Write(f, from, st.Size(), udiftest.Options{Packing: packing}), f.Close())
	}
	if err != nil {
		b.Fatal(err)
	}
}

func first(image string) (*disk.Volume, func() error, error) {
	i, err := disk.OpenImage(image)
	if err != nil {
		return nil, nil, err
	}
	vols, _, err := disk.Volumes(i, i.Size())
	return &vols[0], i.Close, err
}

func firstOf(base string) (*disk.Volume, func() error, error) {
	t, err := openTemplate(base, templateID, "")
	if err != nil {
		return nil, nil, err
	}
	vols, _, err := disk.Volumes(t.Disks[0], t.Disks[0].Size)
	return &vols[0], t.Close, err
}

// layers creates a template of a chain: between two versions 3000 blocks changed.
func layers(b *testing.B, base, image string, depth int) {
	b.Helper()
	versions := []string{image}
	r, noise := rand.New(rand.NewPCG(5, 6)), make([]byte, 4096)
	for k := range depth - 1 {
		name := filepath.Join(filepath.Dir(image), fmt.Sprintf("older%d", k))
		run(b, filepath.Dir(image), "cp", "--sparse=always", versions[0], name)
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			b.Fatal(err)
		}
		st, err := f.Stat()
		for range 3000 {
			for i := range noise {
				noise[i] = byte(r.Uint32())
			}
			if _, err := f.WriteAt(noise, r.Int64N(st.Size()/4096)*4096); err != nil {
				b.Fatal(err)
			}
		}
		if err := errors.Join(err, f.Close()); err != nil {
			b.Fatal(err)
		}
		versions = append([]string{name}, versions...)
	}
	if err := disktest.WriteTemplate(b.Context(), base,
		disktest.Template{ID: templateID, Versions: versions, Format: "raw"}); err != nil {
		b.Fatal(err)
	}
}
