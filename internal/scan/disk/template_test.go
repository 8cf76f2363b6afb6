package disk_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
)

const (
	templateID = "11111111-2222-4333-8444-555555555555"
	secondID   = "22222222-2222-4333-8444-555555555555"
)

// storage creates a template of two versions that differ in a few bytes.
func storage(t testing.TB) (base string, versions [][]byte) {
	t.Helper()
	base = t.TempDir()
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	first := raw(t, one, 5<<20)
	second := append(bytes.Clone(first), make([]byte, 1<<20)...)
	copy(second[3<<20:], "changed")
	clear(second[1<<20 : 2<<20])
	if err := os.WriteFile(two, second, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{templateID, secondID} {
		if err := disktest.WriteTemplate(t.Context(), base,
			disktest.Template{ID: id, Versions: []string{one, two}, Format: "raw"}); err != nil {
			t.Fatal(err)
		}
	}
	return base, [][]byte{first, second}
}

func diskOf(t testing.TB, tpl *disk.Template) []byte {
	t.Helper()
	if len(tpl.Disks) != 1 {
		t.Fatalf("%d disks", len(tpl.Disks))
	}
	b, err := io.ReadAll(io.NewSectionReader(tpl.Disks[0], 0, tpl.Disks[0].Size))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// openedTemplate is a template whose storage is closed with it.
type openedTemplate struct {
	*disk.Template
	storage *disk.Storage
}

func (t openedTemplate) Close() error { return errors.Join(t.Template.Close(), t.storage.Close()) }

func openTemplate(base, id, tag string) (openedTemplate, error) {
	storage, err := disk.OpenStorage(base)
	if err != nil {
		return openedTemplate{}, err
	}
	tpl, err := storage.Open(id, tag)
	if err != nil {
		return openedTemplate{}, errors.Join(err, storage.Close())
	}
	return openedTemplate{tpl, storage}, nil
}

func TestTemplate(t *testing.T) {
	base, versions := storage(t)
	for tag, want := range map[string][]byte{"": versions[1], "v1": versions[1], "v0": versions[0]} {
		tpl, err := openTemplate(base, strings.ToUpper(templateID), tag)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(diskOf(t, tpl.Template), want) || tpl.TemplateVersion.ID != templateID ||
			tag != "" && tpl.TemplateVersion.Tag != tag {
			t.Errorf("%q: %+v", tag, tpl.TemplateVersion)
		}
		if err := tpl.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct{ id, tag, want string }{
		{templateID, "v7", `no tag "v7"`},
		{"33333333-2222-4333-8444-555555555555", "", "not found"},
		{"../../etc", "", "not a template ID"},
	} {
		if _, err := openTemplate(base, c.id, c.tag); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.id, err)
		}
	}
	if _, err := openTemplate(t.TempDir(), templateID, ""); err == nil ||
		!strings.Contains(err.Error(), "no registry storage") &&
			!strings.Contains(err.Error(), "not a registry storage") {
		t.Errorf("%v", err)
	}
}

// Open layers stay readable when their files are gone; others are reported.
func TestTemplateWhoseLayersGo(t *testing.T) {
	base, versions := storage(t)
	s, err := disk.OpenStorage(base)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tags, damaged, err := s.LatestVersions()
	if err != nil || len(damaged) > 0 || len(tags) != 2 || tags[0].Tag != "v1" || tags[1].ID != secondID {
		t.Fatalf("%+v, %+v, %v", tags, damaged, err)
	}
	first, err := s.Open(templateID, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(base, layout.ImagesDir)); err != nil {
		t.Fatal(err)
	}
	second, err := s.Open(secondID, "") // its layers are those of the first
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(diskOf(t, second), versions[1]) {
		t.Error("it differs")
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(templateID, ""); err == nil || !strings.Contains(err.Error(), "is missing") {
		t.Errorf("%v", err)
	}
}

// A qcow2 image that a client could not read is stored as a file. One within a guest's disk is not
// interpreted.
func TestTemplateOfQCOW2(t *testing.T) {
	qemu(t)
	dir := t.TempDir()
	want := raw(t, filepath.Join(dir, "disk.raw"), 2<<20)
	run(t, dir, "qemu-img", "convert", "-O", "qcow2", "disk.raw", "disk.qcow2")
	file, err := os.ReadFile(filepath.Join(dir, "disk.qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string][]byte{"": want, "raw": file} {
		base := t.TempDir()
		if err := disktest.WriteTemplate(t.Context(), base,
			disktest.Template{
				ID: templateID, Versions: []string{filepath.Join(dir, "disk.qcow2")},
				Format: format,
			}); err != nil {
			t.Fatal(err)
		}
		tpl, err := openTemplate(base, templateID, "")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(diskOf(t, tpl.Template), want) {
			t.Errorf("%q differs", format)
		}
		if err := tpl.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestAuxStorage: the second drive of a macOS guest is not among the disks, that of another guest is.
func TestAuxStorage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	raw(t, path, 2<<20)
	const drives = `"hard_drives":[{"file":"disk.img","format":"raw"},{"file":"aux.img","format":"raw"}]`
	for config, want := range map[string]string{
		`{"os":"macos","apple":{"hardware_model":"YQ=="},` + drives + `}`: "aux.img",
		`{"os":"linux",` + drives + `}`:                                   "",
		"":                                                                "",
	} {
		base := t.TempDir()
		err := disktest.WriteTemplate(t.Context(), base, disktest.Template{
			ID: templateID, Versions: []string{path}, Format: "raw", AuxName: "aux.img", Config: config,
		})
		if err != nil {
			t.Fatal(err)
		}
		tpl, err := openTemplate(base, templateID, "")
		if err != nil {
			t.Fatal(err)
		}
		disks := 2
		if want != "" {
			disks = 1
		}
		if tpl.AuxStorage != want || len(tpl.Disks) != disks {
			t.Errorf("%s: auxiliary storage %q, %d disks; want %q, %d", config, tpl.AuxStorage, len(tpl.Disks), want,
				disks)
		}
		if err := tpl.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Many goroutines may read templates of a storage at a time.
func TestManyReaders(t *testing.T) {
	base, versions := storage(t)
	s, err := disk.OpenStorage(base)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var all sync.WaitGroup
	for k := range 6 {
		all.Go(func() {
			tpl, err := s.Open([]string{templateID, secondID}[k%2], []string{"v0", "v1"}[k/2%2])
			if err != nil {
				t.Error(err)
				return
			}
			b, err := io.ReadAll(io.NewSectionReader(tpl.Disks[0], 0, tpl.Disks[0].Size))
			if err := errors.Join(err, tpl.Close()); err != nil || !bytes.Equal(b, versions[k/2%2]) {
				t.Errorf("%d: %v", k, err)
			}
		})
	}
	all.Wait()
}
