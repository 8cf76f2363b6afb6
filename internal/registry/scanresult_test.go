package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

func summaryOf(critical int) api.ScanSummary {
	return api.ScanSummary{
		Scanner: "imagescan", Version: "1.2", Counts: api.ScanCounts{Critical: critical, Packages: 7},
		Database: time.Date(2030, 1, 1, 1, 2, 3, 0, time.UTC), Scanned: time.Date(2030, 1, 2, 1, 2, 3, 0, time.UTC),
	}
}

// attachScan attaches results as a client does.
func attachScan(r *Registry, ref VersionRef, s api.ScanSummary, report string) error {
	d, err := r.BeginScanUpload(ref)
	if err != nil {
		return err
	}
	defer d.Discard()
	if _, err := io.WriteString(d, report); err != nil {
		return err
	}
	return d.Attach(s, ref.ContentID)
}

// scanned returns the scan results of a version: "1 critical: report", or the code of the failure.
func scanned(r *Registry, ref VersionRef) string {
	s, err := r.OpenScan(ref)
	if err != nil {
		return string(farm.CodeOf(err))
	}
	defer s.Close()
	report, err := io.ReadAll(s.Report)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d critical: %s", s.Counts.Critical, report)
}

func scanFiles(t *testing.T, base, id string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(base, "vm_dir", id, ".scans", "*"))
	must(t, err)
	return names
}

// pushText publishes a version whose disk is made from a text.
func pushText(t *testing.T, r *Registry, tag, text string) {
	t.Helper()
	c := makeContent("disk", api.FileDisk, text)
	mustPush(t, r, request(idA, tag, c), c)
}

// TestScansOfVersions: results belong to contents, survive a start, and go with their version.
func TestScansOfVersions(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	v1, v2 := VersionRef{ID: idA, Tag: "v1"}, VersionRef{ID: strings.ToUpper(idA), Tag: "v2"}
	mustPush(t, r, request(idA, "v1"))
	pushText(t, r, "v2", "two")
	const none = string(farm.CodeNotFound)
	if got := scanned(r, v1); got != none {
		t.Error(got)
	}
	must(t, errors.Join(
		attachScan(r, v1, summaryOf(1), `{"one":1}`), attachScan(r, v2, summaryOf(2), `{"two":1}`),
		attachScan(r, VersionRef{ID: idA}, summaryOf(3), `{"two":2}`),
	))
	judge := func(first, second string) {
		t.Helper()
		if got := scanned(r, v1) + ", " + scanned(r, v2); got != first+", "+second {
			t.Errorf("%s; want %s, %s", got, first, second)
		}
		d, err := r.TemplateDetail(idA)
		must(t, err)
		for i, want := range []string{first, second}[:len(d.Versions)] {
			if s := d.Versions[i].Scan; (s == nil) != (want == none) ||
				s != nil && !strings.HasPrefix(want, fmt.Sprint(s.Counts.Critical)) {
				t.Errorf("version %d: %+v", i, s)
			}
		}
	}
	const one, two = `1 critical: {"one":1}`, `3 critical: {"two":2}`
	judge(one, two)
	must(t, r.Close())
	must(t, os.WriteFile(filepath.Join(base, "vm_dir", idA, ".scans", "LEFT.tmp"), nil, 0o600))
	r = open(t, base, clock)
	judge(one, two)
	if n := len(scanFiles(t, base, idA)); n != 2 {
		t.Errorf("%d files", n)
	}
	must(t, r.Revert(t.Context(), v2))
	judge(one, string(farm.CodeNoVersion))
	pushText(t, r, "v2", "two") // the same content again
	judge(one, two)
	must(t, r.Revert(t.Context(), v2))
	must(t, r.CollectGarbage(t.Context()))
	pushText(t, r, "v2", "two")
	judge(one, none)
	if n := len(scanFiles(t, base, idA)); n != 1 {
		t.Errorf("%d files", n)
	}
	must(t, r.RemoveScan(t.Context(), v1))
	judge(none, none)
	if err := r.RemoveScan(t.Context(), v1); farm.CodeOf(err) != farm.CodeNotFound {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(base, "vm_dir", idA, ".scans")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	must(t, attachScan(r, v1, summaryOf(1), `{}`))
	must(t, r.Delete(t.Context(), idA))
	mustPush(t, r, request(idA, "v1"))
	if got := scanned(r, v1); got != none {
		t.Error(got)
	}
}

// TestStaleScans: results of removed contents are removed when others come, and by a requested collection.
func TestStaleScans(t *testing.T) {
	base := t.TempDir()
	r := open(t, base, newClock())
	for _, tag := range []string{"v1", "v2", "v3"} {
		pushText(t, r, tag, tag)
		must(t, attachScan(r, VersionRef{ID: idA, Tag: tag}, summaryOf(1), `{}`))
	}
	must(t, r.Revert(t.Context(), VersionRef{ID: idA, Tag: "v3"}))
	must(t, attachScan(r, VersionRef{ID: idA, Tag: "v1"}, summaryOf(2), `{}`))
	if n := len(scanFiles(t, base, idA)); n != 2 {
		t.Errorf("%d files behind another one", n)
	}
	must(t, r.Revert(t.Context(), VersionRef{ID: idA, Tag: "v2"}))
	for _, c := range []struct {
		dry  bool
		want int
	}{{true, 2}, {false, 1}} {
		_, err := r.GC(t.Context(), GCOptions{DryRun: c.dry})
		if n := len(scanFiles(t, base, idA)); err != nil || n != c.want {
			t.Errorf("dry run %t: %d files, %v", c.dry, n, err)
		}
	}
}

// TestScanConflicts: scan results of content that the version no longer has are refused, and leave nothing.
func TestScanConflicts(t *testing.T) {
	base := t.TempDir()
	r := open(t, base, newClock())
	pushText(t, r, "v1", "one")
	latest := VersionRef{ID: idA}
	meanwhile := func(change func()) error {
		d, err := r.BeginScanUpload(latest)
		must(t, err)
		defer d.Discard()
		_, err = io.WriteString(d, "{}")
		must(t, err)
		change()
		return d.Attach(summaryOf(1), "")
	}
	again := func(text string) { pushText(t, r, "v1", text) }
	for name, c := range map[string]struct {
		change func()
		want   farm.Code
	}{
		"a newer version": {func() { pushText(t, r, "v2", "two") }, ""},
		"pushed again": {func() {
			must(t, r.Revert(t.Context(), VersionRef{ID: idA, Tag: "v1"}))
			again("other")
		}, farm.CodeConflict},
		"reverted": {func() {
			must(t, r.Revert(t.Context(), VersionRef{ID: idA, Tag: "v1"}))
		}, farm.CodeConflict},
		"deleted":             {func() { must(t, r.Delete(t.Context(), idA)) }, farm.CodeNotFound},
		"deleted, then again": {func() { must(t, r.Delete(t.Context(), idA)); again("one") }, farm.CodeConflict},
	} {
		_ = r.Delete(t.Context(), idA)
		again("one")
		if err := meanwhile(c.change); farm.CodeOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
		if files := scanFiles(t, base, idA); c.want != "" && len(files) > 0 {
			t.Errorf("%s leaves %v", name, files)
		}
	}
	_ = r.Delete(t.Context(), idA)
	again("one")
	d, err := r.BeginScanUpload(latest)
	must(t, err)
	defer d.Discard()
	if err := d.Attach(summaryOf(1), strings.Repeat("0", 64)); farm.CodeOf(err) != farm.CodeConflict ||
		!strings.Contains(err.Error(), "has changed") {
		t.Error(err)
	}
	if err := attachScan(r, VersionRef{ID: idB}, summaryOf(1), "{}"); farm.CodeOf(err) != farm.CodeNotFound {
		t.Error(err)
	}
	if err := attachScan(r, VersionRef{ID: idA, Tag: "none"}, summaryOf(1),
		"{}"); farm.CodeOf(err) != farm.CodeNoVersion {
		t.Error(err)
	}
}

// TestScanSummaries: invalid summaries are refused by name.
func TestScanSummaries(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	mustPush(t, r, request(idA, "v1"))
	for field, spoil := range map[string]func(*api.ScanSummary){
		"scanner":         func(s *api.ScanSummary) { s.Scanner = "" },
		"version":         func(s *api.ScanSummary) { s.Version = strings.Repeat("x", 101) },
		"database":        func(s *api.ScanSummary) { s.Database = time.Time{} },
		"scanned":         func(s *api.ScanSummary) { s.Scanned = time.Time{} },
		"counts.high":     func(s *api.ScanSummary) { s.Counts.High = -1 },
		"counts.packages": func(s *api.ScanSummary) { s.Counts.Packages = maxScanCount + 1 },
	} {
		s := summaryOf(1)
		spoil(&s)
		e, ok := errors.AsType[*farm.Error](attachScan(r, VersionRef{ID: idA}, s, "{}"))
		if !ok || e.Code != farm.CodeInvalid || e.Field != field {
			t.Errorf("%s: %v", field, e)
		}
	}
	s := summaryOf(1)
	s.Scanner, s.Version = strings.Repeat("<", 100), strings.Repeat("&", 100)
	s.Counts = api.ScanCounts{
		Critical: maxScanCount, High: maxScanCount, Medium: maxScanCount, Low: maxScanCount, Unknown: maxScanCount,
		Packages: maxScanCount,
	}
	must(t, attachScan(r, VersionRef{ID: idA}, s, "{}")) // the longest note
	if got := scanned(r, VersionRef{ID: idA}); got != "1000000000 critical: {}" {
		t.Error(got)
	}
	d, err := r.BeginScanUpload(VersionRef{ID: idA})
	must(t, err)
	defer d.Discard()
	piece := make([]byte, 1<<20)
	for range MaxScanReport >> 20 {
		_, err = d.Write(piece)
		must(t, err)
	}
	if _, err := d.Write(piece[:1]); farm.CodeOf(err) != farm.CodeTooLarge {
		t.Error(err)
	}
}

// TestDamagedScan: an unreadable file counts as none, can be removed, and is replaced by a new one.
func TestDamagedScan(t *testing.T) {
	base := t.TempDir()
	r := open(t, base, newClock())
	mustPush(t, r, request(idA, "v1"))
	must(t, attachScan(r, VersionRef{ID: idA}, summaryOf(1), "{}"))
	for range 2 {
		must(t, r.Close())
		must(t, os.WriteFile(scanFiles(t, base, idA)[0], []byte("junk"), 0o600))
		r = open(t, base, newClock())
		if got := scanned(r, VersionRef{ID: idA}); got != string(farm.CodeNotFound) {
			t.Error(got)
		}
		if report, err := r.Check(t.Context(), CheckOptions{Deep: true}); err != nil || len(report.Findings) > 0 {
			t.Errorf("%+v, %v", report, err)
		}
		must(t, r.RemoveScan(t.Context(), VersionRef{ID: idA}))
		must(t, attachScan(r, VersionRef{ID: idA}, summaryOf(2), "{}"))
	}
	if got := scanned(r, VersionRef{ID: idA}); got != "2 critical: {}" {
		t.Error(got)
	}
}

// TestConcurrentScanResults: with concurrent writers and readers of one content, each reader sees one result as a
// whole.
func TestConcurrentScanResults(t *testing.T) {
	base := t.TempDir()
	r := open(t, base, newClock())
	mustPush(t, r, request(idA, "v1"))
	report := func(n int) string { return fmt.Sprintf(`{"n":[%s%d]}`, strings.Repeat(fmt.Sprint(n, ","), 5000), n) }
	must(t, attachScan(r, VersionRef{ID: idA}, summaryOf(0), report(0)))
	var work sync.WaitGroup
	for n := range 8 {
		work.Go(func() {
			for range 5 {
				if err := attachScan(r, VersionRef{ID: idA}, summaryOf(n), report(n)); err != nil {
					t.Error(err)
				}
				s, err := r.OpenScan(VersionRef{ID: idA})
				if err != nil {
					t.Error(err)
					continue
				}
				var got struct{ N []int }
				if err := json.NewDecoder(s.Report).Decode(&got); err != nil || got.N[0] != s.Counts.Critical ||
					len(got.N) != 5001 {
					t.Errorf("%d of %d, %v", s.Counts.Critical, len(got.N), err)
				}
				s.Close()
			}
		})
	}
	work.Wait()
	if n := len(scanFiles(t, base, idA)); n != 1 {
		t.Errorf("%d files", n)
	}
	var held []*ScanDraft
	for range MaxScanUploads {
		d, err := r.BeginScanUpload(VersionRef{ID: idA})
		must(t, err)
		held = append(held, d)
	}
	if _, err := r.BeginScanUpload(VersionRef{ID: idA}); farm.CodeOf(err) != farm.CodeBusy {
		t.Error(err)
	}
	for _, d := range held {
		d.Discard()
	}
	must(t, attachScan(r, VersionRef{ID: idA}, summaryOf(1), "{}"))
}

// TestScansComeBackWithARepair: a template that can be read again has its results.
func TestScansComeBackWithARepair(t *testing.T) {
	base := t.TempDir()
	r := open(t, base, newClock())
	mustPush(t, r, request(idA, "v1"))
	must(t, attachScan(r, VersionRef{ID: idA}, summaryOf(1), "{}"))
	must(t, r.Close())
	name := filepath.Join(base, "vm_dir", idA, "template.json")
	whole, err := os.ReadFile(name)
	must(t, err)
	must(t, os.WriteFile(name, []byte("{"), 0o600))
	r = open(t, base, newClock())
	must(t, os.WriteFile(name, whole, 0o600))
	_, err = r.Repair(t.Context(), CheckOptions{})
	must(t, err)
	if got := scanned(r, VersionRef{ID: idA}); got != "1 critical: {}" {
		t.Error(got)
	}
}
