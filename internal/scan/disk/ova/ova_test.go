package ova_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
	"github.com/buildyard/buildyard/internal/scan/disk/ova"
)

// description is what VirtualBox and ovftool write, of what names disks.
const description = `<?xml version="1.0"?>
<Envelope ovf:version="1.0" xml:lang="en-US" xmlns="http://schemas.dmtf.org/ovf/envelope/1"
    xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1">
  <References>
    <File ovf:id="file1" ovf:href="one.vmdk" ovf:size="100"/>
    <File ovf:href="two.vmdk" ovf:id="file2" ovf:compression="identity"/>
    <File ovf:id="file3" ovf:href="packed.vmdk.gz" ovf:compression="gzip"/>
    <File ovf:id="file4" ovf:href="parts.vmdk" ovf:chunkSize="1000"/>
    <File ovf:id="file5" ovf:href="missing.vmdk"/>
    <File ovf:id="file6" ovf:href="cd.iso"/>
    <File ovf:id="file7" ovf:href="sparse.vmdk"/>
  </References>
  <DiskSection>
    <Info>disks</Info>
    <Disk ovf:capacity="1" ovf:diskId="d1" ovf:fileRef="file1" ovf:format="http://example.com#streamOptimized"/>
    <Disk ovf:diskId="d2" ovf:fileRef="file2"/>
    <Disk ovf:diskId="empty"/>
    <Disk ovf:diskId="d3" ovf:fileRef="file3"/>
    <Disk ovf:diskId="d4" ovf:fileRef="file4"/>
    <Disk ovf:diskId="d5" ovf:fileRef="file5"/>
    <Disk ovf:diskId="d6" ovf:fileRef="none"/>
    <Disk ovf:diskId="d7" ovf:fileRef="file1" ovf:parentRef="d1"/>
    <Disk ovf:diskId="d8" ovf:fileRef="file7"/>
  </DiskSection>
  <VirtualSystem ovf:id="vm"><Info>a VM</Info></VirtualSystem>
</Envelope>`

// entry is a file of an archive.
type entry struct{ name, text string }

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Name: e.name, Size: int64(len(e.text)), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func open(b []byte) (*ova.Archive, error) { return ova.Open(bytes.NewReader(b), int64(len(b))) }

func isArchive(b []byte) bool { return ova.IsArchive(bytes.NewReader(b), int64(len(b))) }

// text describes disks: each with its content or its reason.
func text(t *testing.T, disks []ova.Disk) string {
	t.Helper()
	var out []string
	for _, d := range disks {
		what := d.Reason
		if d.File != nil {
			b, err := io.ReadAll(io.NewSectionReader(d.File, 0, d.File.Size()))
			if err != nil {
				t.Fatal(err)
			}
			what = string(b)
		}
		out = append(out, d.Name+": "+what)
	}
	return strings.Join(out, "\n")
}

// TestDisks reads archives that tar writes in each of its formats.
func TestDisks(t *testing.T) {
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip(err)
	}
	const want = `one.vmdk: the first
two.vmdk: the second
packed.vmdk.gz: its file is compressed with "gzip": unpack it
parts.vmdk: its file is in several parts: unpack and join them
missing.vmdk: the archive has no file "missing.vmdk"
d6: the description names no file for it
one.vmdk: it has only the changes to another disk of the appliance: export the VM without snapshots
sparse.vmdk: file "sparse.vmdk" of the archive is stored without its holes: unpack it`
	for _, format := range []string{"ustar", "gnu", "pax"} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"a.ovf": description, "one.vmdk": "the first", "two.vmdk": "the second", "packed.vmdk.gz": "packed",
			"cd.iso": "",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		sparse := filepath.Join(dir, "sparse.vmdk")
		if err := errors.Join(os.WriteFile(sparse, []byte("KDMV"), 0o600), os.Truncate(sparse, 1<<20)); err != nil {
			t.Fatal(err)
		}
		args := []string{
			"-C", dir, "--format=" + format, "-cf", filepath.Join(dir, "a.ova"), "a.ovf", "./one.vmdk",
			"two.vmdk", "packed.vmdk.gz", "cd.iso",
		}
		wanted := want
		if format == "ustar" { // which has no sparse files
			wanted = strings.ReplaceAll(want, `file "sparse.vmdk" of the archive is stored without its holes: unpack it`,
				`the archive has no file "sparse.vmdk"`)
		} else {
			args = append(append([]string{"-S"}, args...), "sparse.vmdk")
		}
		if out, err := exec.Command("tar", args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", format, err, out)
		}
		b, err := os.ReadFile(filepath.Join(dir, "a.ova"))
		if err != nil {
			t.Fatal(err)
		}
		if !isArchive(b) {
			t.Errorf("%s: it is not an appliance", format)
		}
		a, err := open(b)
		if err != nil {
			t.Fatal(err)
		}
		disks, err := a.Disks()
		if err != nil {
			t.Fatal(err)
		}
		if got := text(t, disks); got != wanted {
			t.Errorf("%s: got\n%s\nwant\n%s", format, got, wanted)
		}
	}
}

// References are URLs; of two files with a name the exact one is read.
func TestEscapedNames(t *testing.T) {
	const text = `<Envelope><References><File id="1" href="a%20disk.vmdk"/><File id="2" href="100%25.vmdk"/>
		<File id="3" href="100%.vmdk"/><File id="4" href="no%20disk.vmdk"/></References><DiskSection>
		<Disk fileRef="1"/><Disk fileRef="2"/><Disk fileRef="3"/><Disk fileRef="4"/></DiskSection></Envelope>`
	a, err := open(archive(t, entry{"a.ovf", text}, entry{"a disk.vmdk", "spaces"}, entry{"100%25.vmdk", "exact"},
		entry{"100%.vmdk", "percent"}))
	if err != nil {
		t.Fatal(err)
	}
	disks, err := a.Disks()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range disks {
		if d.File == nil {
			got = append(got, d.Reason)
			continue
		}
		b, err := io.ReadAll(d.File)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(b))
	}
	want := []string{"spaces", "exact", "percent", `the archive has no file "no%20disk.vmdk"`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOtherArchives(t *testing.T) {
	disk := entry{"one.vmdk", "the first"}
	for name, b := range map[string][]byte{
		"empty": nil, "text": []byte(description), "tar": archive(t, disk), "tar of none": archive(t),
		"a directory": archive(t, entry{"a.ovf/", ""}), "disk first": archive(t, disk, entry{"a.ovf", description}),
	} {
		if isArchive(b) {
			t.Errorf("%s is an appliance", name)
		}
	}
	whole := archive(t, entry{"A.OVF", description}, disk)
	if !isArchive(whole) {
		t.Error("capital letters: it is not an appliance")
	}
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"cut off in a file":     {archive(t, entry{"a.ovf", description})[:700], "ends within"},
		"cut off in a header":   {whole[:len(whole)-1600], "the archive"},
		"no XML":                {archive(t, entry{"a.ovf", "text"}), "the description"},
		"another document":      {archive(t, entry{"a.ovf", "<html></html>"}), "the description"},
		"nested":                {archive(t, entry{"a.ovf", strings.Repeat("<Envelope>", 100_000)}), "the description"},
		"a huge description":    {archive(t, entry{"a.ovf", strings.Repeat(" ", 5<<20)}), "description has"},
		"two files of one name": {archive(t, entry{"a.ovf", description}, disk, entry{"./one.vmdk", ""}), "two files"},
		"many files":            {archive(t, many(5000)...), "more than 4096 files"},
	} {
		a, err := open(c.b)
		if err == nil {
			_, err = a.Disks()
		}
		if !errors.Is(err, chunked.ErrDamaged) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	disks := strings.Repeat(`<Disk diskId="d"/>`, 300)
	a, err := open(archive(t, entry{"a.ovf", "<Envelope><DiskSection>" + disks + "</DiskSection></Envelope>"}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Disks(); err == nil || !strings.Contains(err.Error(), "more than 256 disks") {
		t.Errorf("many disks: %v", err)
	}
}

func many(n int) []entry {
	out := []entry{{"a.ovf", description}}
	for k := range n {
		out = append(out, entry{fmt.Sprint(k), ""})
	}
	return out
}

// FuzzOpen changes the description and some bytes of an archive.
func FuzzOpen(f *testing.F) {
	f.Add(description, []byte{})
	f.Add("<Envelope></Envelope>", []byte{0, 124, '7', '7'})
	f.Fuzz(func(t *testing.T, text string, patches []byte) {
		b := archive(t, entry{"a.ovf", text}, entry{"one.vmdk", "the first"}, entry{"two.vmdk", "the second"})
		for ; len(patches) >= 4; patches = patches[4:] {
			copy(b[(int(patches[0])<<8|int(patches[1]))%len(b):], patches[2:4])
		}
		_ = isArchive(b)
		a, err := open(b)
		if err != nil {
			return
		}
		disks, _ := a.Disks()
		for _, d := range disks {
			if (d.File == nil) == (d.Reason == "") {
				t.Errorf("%+v", d)
			}
			if d.File != nil {
				_, _ = io.ReadAll(io.NewSectionReader(d.File, 0, d.File.Size()))
			}
		}
	})
}
