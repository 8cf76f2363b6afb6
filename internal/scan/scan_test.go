package scan

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
)

func TestParseSource(t *testing.T) {
	for text, want := range map[string]string{
		"vm_image:a:b.img": "", "dir:.": "", "registry_template:*": "",
		"registry_template:c0847bc9-5d2d-4dbc-ba6a-240f7ff08032":          "",
		"registry_template:C0847BC9-5D2D-4DBC-BA6A-240F7FF08032:v1:final": "",
		"": "invalid source", "image.qcow2": "invalid source", "dir:": "after the colon is empty",
		"docker:x":            `type "docker"`,
		"registry_template:x": "not a template ID", "registry_template:../../etc:v1": "not a template ID",
		"registry_template:*:v1":                                  "cannot have another tag",
		"registry_template:c0847bc9-5d2d-4dbc-ba6a-240f7ff08032:": "tag after the last colon is empty",
	} {
		src, err := ParseSource(text)
		if want == "" && (err != nil || src.String() != text) ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, %v", text, src, err)
		}
	}
	src, _ := ParseSource("registry_template:C0847BC9-5D2D-4DBC-BA6A-240F7FF08032:v1:final")
	if id, tag := src.templateVersion(); id != "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032" || tag != "v1:final" {
		t.Errorf("version %q %q", id, tag)
	}
}

// TestMount: one tree begins at the root, the others below /Volumes, each under a separate name.
func TestMount(t *testing.T) {
	linux := fstest.MapFS{"etc/passwd": {}, "usr/bin/x": {}}
	v := func(name, role, group string, files fstest.MapFS) volume {
		return volume{Volume: Volume{Name: name, Role: role}, group: group, bootRank: bootRank(role, files)}
	}
	for name, c := range map[string]struct {
		volumes []volume
		want    string
	}{
		"none": {nil, ""},
		"one":  {[]volume{v("x", "", "", fstest.MapFS{})}, "/"},
		"a Mac": {[]volume{v("Data", "data", "g", linux), v("System", "system", "g", linux), v("More", "",
			"", linux)}, "/ / /Volumes/More"},
		"two Macs": {[]volume{v("S", "system", "a", linux), v("D", "data", "a", linux), v("S", "system", "b",
			linux)}, "/ / /Volumes/S"},
		"the root of it": {[]volume{v("boot", "", "", fstest.MapFS{"grub": {}}), v("", "", "", linux), v("home", "",
			"", fstest.MapFS{"ci": {}})}, "/Volumes/boot / /Volumes/home"},
		"equal names": {[]volume{v("a", "", "", linux), v("b/c", "", "", fstest.MapFS{}), v("b/c", "", "",
			fstest.MapFS{}), v("", "", "", fstest.MapFS{})}, "/ /Volumes/b:c /Volumes/b:c 2 /Volumes/volume"},
	} {
		assignMountPaths(c.volumes)
		var got []string
		for _, v := range c.volumes {
			got = append(got, v.MountPath)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestAuxStorageIsSkipped: the auxiliary storage of a macOS guest is left out with its reason.
func TestAuxStorageIsSkipped(t *testing.T) {
	const id = "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032"
	path, base := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	err := disktest.WriteTemplate(t.Context(), base, disktest.Template{
		ID: id, Versions: []string{path}, Format: "raw", AuxName: "aux.img",
		Config: `{"apple":{},"hard_drives":[{"file":"disk.img"},{"file":"aux.img"}]}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []Skipped
	err = CatalogEach(t.Context(), Source{Template, id}, Options{Storage: base}, func(inv *Inventory) error {
		got = inv.Skipped
		return nil
	})
	want := Skipped{Name: "aux.img", Reason: reasonAuxStorage}
	if err != nil || !slices.Contains(got, want) {
		t.Errorf("skipped %+v, %v, want %+v", got, err, want)
	}
}

// TestArchiveOfAnka: a template that no scanner can read counts as not covered, and its reason is named.
func TestArchiveOfAnka(t *testing.T) {
	const id = "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032"
	storage, archive := t.TempDir(), filepath.Join(t.TempDir(), "vm.ank")
	if err := os.WriteFile(archive, []byte("QFI\xfb, as a qcow2 image begins"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := disktest.WriteTemplate(t.Context(), storage,
		disktest.Template{ID: id, Versions: []string{archive}, Format: disk.FormatAnka})
	if err != nil {
		t.Fatal(err)
	}
	src, err := ParseSource("registry_template:" + id)
	if err != nil {
		t.Fatal(err)
	}
	err = CatalogEach(t.Context(), src, Options{Storage: storage}, func(inv *Inventory) error {
		if len(inv.Skipped) != 1 || inv.Skipped[0].Reason != skippedArchive || !inv.Skipped[0].MayHavePackages {
			t.Errorf("skipped are %+v", inv.Skipped)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
