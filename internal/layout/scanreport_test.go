package layout

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// scanned is a storage with a template that has one version, of content root1.
func scanned(t testing.TB) *Dir {
	t.Helper()
	d, err := Create(t.TempDir(), Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	tpl := &Template{ID: testID, Name: "x", Gen: 1, Versions: []Version{{Tag: "v1", ContentID: root1}}}
	if err := d.StageVersion(testID, &tpl.Versions[0], []byte(`{}`), nil); err != nil {
		t.Fatal(err)
	}
	if err := d.SaveTemplate(tpl); err != nil {
		t.Fatal(err)
	}
	return d
}

func attach(d *Dir, content, note, report string) error {
	s, err := d.CreateScanDraft(testID)
	if err != nil {
		return err
	}
	defer s.Discard()
	if _, err := io.WriteString(s, report); err != nil {
		return err
	}
	if err := s.Finish([]byte(note)); err != nil {
		return err
	}
	return s.Commit(content)
}

func report(t *testing.T, d *Dir, content string) (note, text string) {
	t.Helper()
	s, err := d.OpenScanReport(testID, content)
	if err != nil {
		return "", err.Error()
	}
	defer s.Close()
	raw, err := io.ReadAll(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(s.Note), string(raw)
}

// TestScans: reports are added and removed as a whole, with their notes, next to the versions.
func TestScans(t *testing.T) {
	d := scanned(t)
	if notes, err := d.ScanNotes(testID); notes != nil || err != nil {
		t.Fatal(notes, err)
	}
	if _, err := d.OpenScanReport(testID, root1); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	long := strings.Repeat(`{"a":1}`, 300_000)
	for _, c := range []struct{ content, note, report string }{
		{root1, `{"one":1}`, `{"r":1}`}, {root1, strings.Repeat("n", MaxNoteBytes), long}, {root2, "", ""},
	} {
		if err := attach(d, c.content, c.note, c.report); err != nil {
			t.Fatal(err)
		}
		if note, text := report(t, d, c.content); note != c.note || text != c.report {
			t.Errorf("note of %d bytes, report of %d", len(note), len(text))
		}
	}
	notes, err := d.ScanNotes(testID)
	if err != nil || len(notes) != 2 || len(notes[root1]) != MaxNoteBytes || len(notes[root2]) != 0 {
		t.Errorf("%d notes, %v", len(notes), err)
	}
	if out, err := exec.CommandContext(t.Context(), "gzip", "-dc",
		filepath.Join(d.Base(), scanReportPath(testID, root1))).Output(); err != nil || string(out) != long {
		t.Errorf("gzip gives %d bytes, %v", len(out), err)
	}
	tpl, err := d.Template(testID)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.PruneTemplate(&tpl), d.CheckVersion(testID, &tpl.Versions[0])); err != nil {
		t.Error(err)
	}
	if _, text := report(t, d, root1); text != long {
		t.Error("a template that is tidied loses its reports")
	}
	for _, content := range []string{root1, root1, root2} {
		if err := d.RemoveScanReport(testID, content); err != nil {
			t.Error(err)
		}
	}
	if notes, err := d.ScanNotes(testID); notes != nil || err != nil {
		t.Error(notes, err)
	}
}

// TestScanDrafts: an uncommitted draft is not visible, and leaves nothing.
func TestScanDrafts(t *testing.T) {
	d := scanned(t)
	if err := attach(d, "../../../x", "n", "r"); err == nil {
		t.Error("a content id that is a path")
	}
	if err := attach(d, root1, strings.Repeat("n", MaxNoteBytes+1), "r"); err == nil {
		t.Error("a note that is too long")
	}
	if err := errors.Join(d.RemoveScanReport(testID, root1)); err != nil {
		t.Error(err)
	}
	if err := d.RemoveScanReport(testID, "../"+root1); err == nil {
		t.Error("a removal by a path")
	}
	if _, err := d.OpenScanReport(testID, "../0"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	s, err := d.CreateScanDraft(testID)
	if err != nil {
		t.Fatal(err)
	}
	if notes, err := d.ScanNotes(testID); len(notes) != 0 || err != nil {
		t.Error(notes, err)
	}
	if err := errors.Join(d.PruneScanDrafts(testID), d.PruneScanDrafts(testID)); err != nil { // as after a crash
		t.Error(err)
	}
	s.Discard()
	entries, err := d.ReadDir(TemplatePath(testID))
	if err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == scansDir }) {
		t.Error(entries, err)
	}
}

// TestDamagedScans: a file that is not a report is reported as unreadable.
func TestDamagedScans(t *testing.T) {
	d := scanned(t)
	if err := attach(d, root1, "note", "report"); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(d.Base(), scanReportPath(testID, root1))
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i, raw := range [][]byte{nil, whole[:noteOffset], bytes.Repeat([]byte{0},
		5000), slices.Concat([]byte{0x1f, 0x8b, 8, 0}, whole[4:])} {
		if err := os.WriteFile(name, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		notes, err := d.ScanNotes(testID)
		if note, ok := notes[root1]; !ok || note != nil || err != nil {
			t.Errorf("%d: %q, %v", i, note, err)
		}
		if _, err := d.OpenScanReport(testID, root1); !errors.Is(err, ErrNoNote) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// FuzzScan: whatever a report's file holds, reading it ends, with the note or an error.
func FuzzScan(f *testing.F) {
	d := scanned(f)
	if err := attach(d, root1, "note", `{"r":[1,2,3]}`); err != nil {
		f.Fatal(err)
	}
	name := filepath.Join(d.Base(), scanReportPath(testID, root1))
	whole, err := os.ReadFile(name)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-5])
	f.Add([]byte{0x1f, 0x8b, 8, 4})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := os.WriteFile(name, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := d.OpenScanReport(testID, root1)
		if err != nil {
			return
		}
		defer s.Close()
		if len(s.Note) > MaxNoteBytes {
			t.Errorf("a note of %d bytes", len(s.Note))
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(s, 1<<20))
	})
}
