package scan

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
	"github.com/buildyard/buildyard/internal/scan/disk/udif/udiftest"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/apfstest"
)

// apfsDisk returns a disk with a package of npm.
func apfsDisk(t *testing.T, volume, pkg string) []byte {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = apfstest.Write(f, apfstest.Container{Volumes: []apfstest.Volume{{Name: volume, Files: []apfstest.File{{
		Path: "node_modules/" + pkg + "/package.json", Data: fmt.Appendf(nil, `{"name":%q,"version":"1.0.0"}`, pkg),
	}}}}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return append(b, make([]byte, (512-len(b)%512)%512)...)
}

// catalogFile catalogs an image, and returns its packages with their places, and what was skipped.
func catalogFile(t *testing.T, name string) (packages, skipped []string) {
	t.Helper()
	err := CatalogEach(t.Context(), Source{Image, name}, Options{}, func(inv *Inventory) error {
		for _, p := range inv.Packages {
			packages = append(packages, p.Name+" "+strings.Join(p.Locations, " "))
		}
		for _, s := range inv.Skipped {
			skipped = append(skipped, s.Name+": "+s.Reason)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages, skipped
}

// All disks of an appliance are cataloged, and those that cannot be read count as not covered.
func TestAppliance(t *testing.T) {
	one, two := apfsDisk(t, "One", "lodash"), apfsDisk(t, "Two", "express")
	describe := func(disk []byte, name string) string {
		return fmt.Sprintf("# Disk DescriptorFile\nRW %d FLAT \"%s\" 0\n", len(disk)/512, name)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct{ name, text string }{
		{"vm.ovf", `<Envelope><References><File id="1" href="one.vmdk"/><File id="2" href="two.vmdk"/>` +
			`<File id="3" href="gone.vmdk"/><File id="4" href="text.vmdk"/></References><DiskSection>` +
			`<Disk fileRef="1"/><Disk fileRef="2"/><Disk fileRef="3"/><Disk fileRef="4"/></DiskSection></Envelope>`},
		{"one.vmdk", describe(one, "one")},
		{"one", string(one)},
		{"two.vmdk", describe(two, "two")},
		{"two", string(two)},
		{"text.vmdk", "# Disk DescriptorFile\nRW 1 FLAT \"text\"\n"},
		{"text", strings.Repeat("text ", 200)},
	} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Size: int64(len(f.text)), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "vm.ova")
	if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	packages, skipped := catalogFile(t, name)
	const want = "express /Volumes/Two/node_modules/express/package.json, lodash /node_modules/lodash/package.json"
	if got := strings.Join(packages, ", "); got != want {
		t.Errorf("packages %s, want %s", got, want)
	}
	if len(skipped) != 2 || skipped[0] != `gone.vmdk: the archive has no file "gone.vmdk"` ||
		!strings.HasPrefix(skipped[1], "text.vmdk: not a disk image") {
		t.Errorf("skipped: %q", skipped)
	}
}

// A DMG has the packages of its disk.
func TestDMG(t *testing.T) {
	disk := apfsDisk(t, "One", "lodash")
	var out bytes.Buffer
	if err := udiftest.Write(&out, bytes.NewReader(disk), int64(len(disk)),
		udiftest.Options{Packing: udiftest.Named("lzfse")}); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "disk.dmg")
	if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	packages, skipped := catalogFile(t, name)
	if got := strings.Join(packages, ", "); got != "lodash /node_modules/lodash/package.json" || len(skipped) > 0 {
		t.Errorf("packages %s, skipped %q", got, skipped)
	}
}

// Parts of a disk are named once with their partition.
func TestNamesOfSkippedParts(t *testing.T) {
	const start, size = 1 << 20, 4 << 20
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("SWAPSPACE2"), start+4086); err != nil {
		t.Fatal(err)
	}
	err = disktest.WriteGPT(f, size, 512, disktest.Part{Type: disktest.Swap, Start: start, Length: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	_, skipped := catalogFile(t, f.Name())
	if got := strings.Join(skipped, "\n"); !strings.HasPrefix(got, "partition 1 (swap)") {
		t.Errorf("%s", got)
	}
}
