package disk_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/disk/udif/udiftest"
)

// vmdkForms are the forms that qemu-img writes.
var vmdkForms = []string{
	"monolithicSparse", "monolithicFlat", "twoGbMaxExtentSparse", "twoGbMaxExtentFlat", "streamOptimized",
}

// Every form of a VMDK image reads as the raw file that it was made of, holes included.
func TestVMDK(t *testing.T) {
	qemu(t)
	dir := t.TempDir()
	want := raw(t, filepath.Join(dir, "disk.raw"), 9<<20+512*7)
	for _, form := range vmdkForms {
		file := filepath.Join(dir, form+".vmdk")
		run(t, dir, "qemu-img", "convert", "-O", "vmdk", "-o", "subformat="+form, "disk.raw", file)
		if !bytes.Equal(content(t, file), want) {
			t.Errorf("%s differs", form)
		}
		i, err := disk.OpenImage(file)
		if err != nil {
			t.Fatal(err)
		}
		checkHoles(t, form, i, want)
		if i.Format() != "vmdk" || len(i.Disks()) != 1 || i.Disks()[0].Size != i.Size() || len(i.Skipped()) > 0 {
			t.Errorf("%s: format %q, disks %+v", form, i.Format(), i.Disks())
		}
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	}
}

// checkHoles compares what is between the ranges with data with the disk.
func checkHoles(t *testing.T, name string, i *disk.Image, want []byte) {
	t.Helper()
	holes := int64(0)
	for at := int64(0); at < i.Size(); {
		start, end, err := i.NextData(at)
		if err != nil {
			t.Fatal(err)
		}
		if start == end {
			start, end = i.Size(), i.Size()
		}
		if len(bytes.TrimLeft(want[at:start], "\x00")) > 0 {
			t.Fatalf("%s: there is data between %d and %d", name, at, start)
		}
		holes += start - at
		at = end
	}
	if holes == 0 {
		t.Errorf("%s has no holes", name)
	}
}

// A disk of more than 2 GiB has several extents.
func TestExtents(t *testing.T) {
	qemu(t)
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "disk.raw"))
	if err != nil {
		t.Fatal(err)
	}
	const size, before, behind = 5 << 30, 2<<30 - 100, 4<<30 + 1234
	text := bytes.Repeat([]byte("text over the end of the first extent "), 100)
	for _, at := range []int64{before, behind} {
		if _, err := f.WriteAt(text, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"twoGbMaxExtentSparse", "twoGbMaxExtentFlat"} {
		file := filepath.Join(dir, form+".vmdk")
		run(t, dir, "qemu-img", "convert", "-S", "4k", "-O", "vmdk", "-o", "subformat="+form, "disk.raw", file)
		i, err := disk.OpenImage(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int64{before, behind} {
			got := make([]byte, len(text))
			if _, err := i.ReadAt(got, at); err != nil || !bytes.Equal(got, text) {
				t.Errorf("%s: it differs at %d: %v", form, at, err)
			}
		}
		start, end, err := i.NextData(65536) // qemu-img may write the first block of a flat file
		if err != nil || start > before || start < before-65536 || end < start || i.Size() != size {
			t.Errorf("%s: data of %d bytes is at %d-%d, %v", form, i.Size(), start, end, err)
		}
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	}
}

// An image can reach only files next to it.
func TestExtentsThatLeadAway(t *testing.T) {
	outside := t.TempDir()
	raw(t, filepath.Join(outside, "secret"), 1<<20)
	for name, c := range map[string]struct{ extent, want string }{
		"absolute":    {filepath.Join(outside, "secret"), "outside of the directory of the image"},
		"upwards":     {"../secret", "outside of the directory of the image"},
		"there, back": {"sub/../flat", "outside of the directory of the image"},
		"link out":    {"link", "escapes"},
		"device":      {"/dev/sda", "outside of the directory of the image"},
		"drive":       {"C:disk", "is not a path"},
		"missing":     {"gone", "no such file"},
		"directory":   {"sub", "not a regular file"},
		"itself":      {"image.vmdk", "bytes, and the extent"},
		"below":       {"sub/flat", ""},
		"next to it":  {"flat", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o755),
				os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link"))); err != nil {
				t.Fatal(err)
			}
			raw(t, filepath.Join(dir, "flat"), 1<<20)
			want := raw(t, filepath.Join(dir, "sub", "flat"), 1<<20)
			writeAll(t, dir, map[string][]byte{
				"image.vmdk": fmt.Appendf(nil, "# Disk DescriptorFile\nRW 2048 FLAT \"%s\" 0\n", c.extent),
			})
			file := filepath.Join(dir, "image.vmdk")
			if c.want == "" {
				if !bytes.Equal(content(t, file), want) {
					t.Error("it differs")
				}
				return
			}
			if i, err := disk.OpenImage(file); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v", i, err)
			}
		})
	}
}

// A snapshot is refused: it has only changes.
func TestSnapshotOfVMDK(t *testing.T) {
	qemu(t)
	dir := t.TempDir()
	run(t, dir, "qemu-img", "create", "-q", "-f", "vmdk", "base.vmdk", "4M")
	run(t, dir, "qemu-img", "create", "-q", "-f", "vmdk", "-b", "base.vmdk", "-F", "vmdk", "top.vmdk")
	i, err := disk.OpenImage(filepath.Join(dir, "top.vmdk"))
	if err == nil || !strings.Contains(err.Error(), `a snapshot, which has only the changes to "base.vmdk"`) {
		t.Errorf("%v, %v", i, err)
	}
}

// TestDMG opens images through their file, and refuses encrypted ones.
func TestDMG(t *testing.T) {
	dir := t.TempDir()
	want := raw(t, filepath.Join(dir, "disk.raw"), 3<<20)
	f, err := os.Create(filepath.Join(dir, "disk.dmg"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(udiftest.Write(f, bytes.NewReader(want), int64(len(want)),
		udiftest.Options{Packing: udiftest.Named("raw"), Parts: 2, ChunkBytes: 64 << 10}), f.Close()); err != nil {
		t.Fatal(err)
	}
	i, err := disk.OpenImage(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	if i.Format() != "dmg" || !bytes.Equal(content(t, f.Name()), want) {
		t.Errorf("it differs, format %s", i.Format())
	}
	checkHoles(t, "dmg", i, want)
	for name, b := range map[string][]byte{
		"new": append([]byte("encrcdsa\x00\x00\x00\x02"), make([]byte, 100_000)...),
		"old": append(make([]byte, 100_000), "cdsaencr"...),
	} {
		writeAll(t, dir, map[string][]byte{name: b})
		if i, err := disk.OpenImage(filepath.Join(dir, name)); err == nil ||
			!strings.Contains(err.Error(), "(DMG) is encrypted") {
			t.Errorf("%s: %v, %v", name, i, err)
		}
	}
}

// appliance writes an archive of files in a directory with a description of disks, by their file names.
func appliance(t testing.TB, dir string, disks []string, files ...string) string {
	t.Helper()
	var references, section strings.Builder
	for k, name := range disks {
		fmt.Fprintf(&references, "<File ovf:id=\"file%d\" ovf:href=\"%s\"/>", k, name)
		fmt.Fprintf(&section, "<Disk ovf:diskId=\"disk%d\" ovf:fileRef=\"file%d\"/>", k, k)
	}
	writeAll(t, dir, map[string][]byte{"vm.ovf": []byte(`<?xml version="1.0"?><Envelope ` +
		`xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"><References>` +
		references.String() + "</References><DiskSection>" + section.String() + "</DiskSection></Envelope>")})
	run(t, dir, append([]string{"tar", "--format=ustar", "-cf", "vm.ova", "vm.ovf"}, files...)...)
	return filepath.Join(dir, "vm.ova")
}

// The disks of an appliance are read in place; those that cannot be read are named.
func TestOVA(t *testing.T) {
	qemu(t)
	dir := t.TempDir()
	one, two := raw(t, filepath.Join(dir, "one.raw"), 5<<20), raw(t, filepath.Join(dir, "two.raw"), 3<<20)
	run(t, dir, "qemu-img", "convert", "-O", "vmdk", "-o", "subformat=streamOptimized", "one.raw", "one.vmdk")
	run(t, dir, "qemu-img", "convert", "-O", "vmdk", "-o", "subformat=monolithicFlat", "two.raw", "two.vmdk")
	file := appliance(t, dir, []string{"two.raw", "one.vmdk", "two.vmdk", "gone.vmdk"}, "one.vmdk", "two.vmdk",
		"two-flat.vmdk", "two.raw")
	i, err := disk.OpenImage(file)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	if !bytes.Equal(content(t, file), one) || i.Format() != "ova" {
		t.Errorf("the first disk differs, format %s", i.Format())
	}
	for k, want := range [][]byte{one, two} {
		d := i.Disks()[k]
		got, err := io.ReadAll(io.NewSectionReader(d, 0, d.Size))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("disk %s differs: %v", d.Name, err)
		}
	}
	var skipped []string
	for _, s := range i.Skipped() {
		if s.Err == nil || !s.MayHavePackages {
			t.Errorf("%+v", s)
		}
		skipped = append(skipped, s.Name+": "+s.Reason)
	}
	if got := strings.Join(skipped, "; "); len(i.Disks()) != 2 || got != "two.raw: it is not a VMDK image: unpack the "+
		"archive, and scan the disk; gone.vmdk: the archive has no file \"gone.vmdk\"" {
		t.Errorf("%d disks, skipped: %s", len(i.Disks()), got)
	}
	for want, disks := range map[string][]string{
		"it has no disks": nil, `disk gone.vmdk: the archive has no file "gone.vmdk"`: {"gone.vmdk"},
	} {
		if i, err := disk.OpenImage(appliance(t, dir, disks, "one.vmdk")); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v", i, err)
		}
	}
}

// Damage of every format is ErrDamaged.
func TestDamagedImages(t *testing.T) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "vm.ovf", Mode: 0o600}), w.Close()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeAll(t, dir, map[string][]byte{
		"vmdk": append([]byte("KDMV\x01"), make([]byte, 1024)...), "ova": archive.Bytes(),
		"dmg": append(append(make([]byte, 4096), "koly\x00\x00\x00\x04"...), make([]byte, 504)...),
	})
	for _, name := range []string{"vmdk", "dmg", "ova"} {
		if i, err := disk.OpenImage(filepath.Join(dir, name)); !errors.Is(err, disk.ErrDamaged) {
			t.Errorf("%s: %v, %v", name, i, err)
		}
	}
}
