package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/scan/disk/udif/udiftest"
	"github.com/buildyard/buildyard/test/rig"
)

// virtualForms are the formats of other hypervisors and of macOS.
func virtualForms() []form {
	out := []form{
		vmdkForm("vmdk sparse", "monolithicSparse"), vmdkForm("vmdk flat", "monolithicFlat"),
		vmdkForm("vmdk 2gb sparse", "twoGbMaxExtentSparse"), vmdkForm("vmdk 2gb flat", "twoGbMaxExtentFlat"),
		vmdkForm("vmdk stream", "streamOptimized"),
		{"ova", ovaForm},
	}
	for _, p := range udiftest.Packings {
		out = append(out, form{"dmg " + p.Name, func(ctx context.Context, d *made) (opened, error) {
			return dmgForm(ctx, d, p)
		}})
	}
	return out
}

// inDirectory opens what write writes into a new directory, which is removed when it is closed.
func (d *made) inDirectory(write func(dir string) (name string, err error)) (opened, error) {
	dir, err := os.MkdirTemp(d.dir, "form")
	if err != nil {
		return opened{}, err
	}
	name, err := write(dir)
	if err != nil {
		return opened{}, err
	}
	o, err := openImage(name)
	if err != nil {
		return o, err
	}
	closed := o.close
	o.close = func() error { return errors.Join(closed(), os.RemoveAll(dir)) }
	return o, nil
}

// vmdkForm returns a format that qemu-img writes, and in which it reads the bytes of the raw file.
func vmdkForm(name, subformat string) form {
	return form{name, func(ctx context.Context, d *made) (opened, error) {
		return d.inDirectory(func(dir string) (string, error) {
			to, err := writeVMDK(ctx, dir, d.raw, subformat)
			if err == nil {
				_, err = rig.Output(ctx, dir, "qemu-img", "compare", "-f", "raw", "-F", "vmdk", d.raw, to)
			}
			return to, err
		})
	}}
}

func writeVMDK(ctx context.Context, dir, raw, subformat string) (string, error) {
	to := filepath.Join(dir, "disk.vmdk")
	_, err := rig.Output(ctx, dir, "qemu-img", "convert", "-f", "raw", "-O", "vmdk", "-o", "subformat="+subformat, raw,
		to)
	return to, err
}

func ovaForm(ctx context.Context, d *made) (opened, error) {
	return d.inDirectory(func(dir string) (string, error) { return writeOVA(ctx, dir, d.raw) })
}

// writeOVA writes an appliance of one disk.
func writeOVA(ctx context.Context, dir, raw string) (string, error) {
	const text = `<?xml version="1.0"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1">
<References><File ovf:id="file1" ovf:href="disk.vmdk"/></References>
<DiskSection><Info>disks</Info><Disk ovf:diskId="disk1" ovf:fileRef="file1"/></DiskSection>
</Envelope>
`
	if _, err := writeVMDK(ctx, dir, raw, "streamOptimized"); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "vm.ovf"), []byte(text), 0o600); err != nil {
		return "", err
	}
	to := filepath.Join(dir, "vm.ova")
	_, err := rig.Output(ctx, dir, "tar", "--format=ustar", "-cf", to, "vm.ovf", "disk.vmdk")
	return to, err
}

// dmgForm writes an image with one kind of chunks, in which 7-Zip and, if it knows the kind, dmg2img read the bytes
// of the raw file.
func dmgForm(ctx context.Context, d *made, p udiftest.Packing) (opened, error) {
	return d.inDirectory(func(dir string) (string, error) {
		to, err := writeDMG(dir, d.raw, p)
		if err != nil {
			return "", err
		}
		other := filepath.Join(dir, "other")
		if _, err := rig.Output(ctx, dir, "sh", "-c", `7z x -tdmg -so "$1" >"$2"`, "sh", to, other); err != nil {
			return "", err
		}
		if err := equalFiles(d.raw, other); err != nil {
			return "", fmt.Errorf("7z: %w", err)
		}
		if p.Name == "lzfse" || p.Name == "xz" {
			return to, nil
		}
		if _, err := rig.Output(ctx, dir, "dmg2img", "-s", "-i", to, "-o", other); err != nil {
			return "", err
		}
		if err := equalFiles(d.raw, other); err != nil {
			return "", fmt.Errorf("dmg2img: %w", err)
		}
		return to, nil
	})
}

func writeDMG(dir, raw string, p udiftest.Packing) (string, error) {
	f, err := os.Open(raw)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	to, err := os.Create(filepath.Join(dir, "disk.dmg"))
	if err != nil {
		return "", err
	}
	err = udiftest.Write(to, f, st.Size(), udiftest.Options{Packing: p, ChunkBytes: 1 << 20})
	return to.Name(), errors.Join(err, to.Close())
}

// equalFiles compares two files.
func equalFiles(name, other string) error {
	f, err := os.Open(other)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	return sameBytes(name, opened{ReaderAt: f, size: st.Size()})
}
