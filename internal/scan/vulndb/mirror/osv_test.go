package mirror

import (
	"archive/zip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/mirror/upstreamtest"
)

// npm returns records of an ecosystem, each about a package with the ID as its name.
func npm(n int) map[string]upstreamtest.Record {
	out := map[string]upstreamtest.Record{}
	for i := range n {
		id := fmt.Sprintf("GHSA-a-%04d", i)
		out[id] = upstreamtest.Advisory(id, "npm", id, "1.0.0", upstreamtest.Day.Add(time.Duration(i)*time.Second))
	}
	return out
}

// changed returns the records in the file of changes.
func (m *mirrored) changed(t testing.TB) map[string]string {
	t.Helper()
	z, err := zip.OpenReader(m.path(t, "osv/npm", "osv/npm/changes.zip"))
	check(t, err)
	defer z.Close()
	out := map[string]string{}
	for _, e := range z.File {
		r, err := e.Open()
		check(t, err)
		b, err := io.ReadAll(r)
		check(t, err)
		out[strings.TrimSuffix(e.Name, ".json")] = string(b)
	}
	return out
}

// TestChanges: new, changed and removed records are fetched one by one.
func TestChanges(t *testing.T) {
	m := newMirror(t)
	records := npm(300)
	m.SetOSV("npm", records, true)
	m.sync(t, "osv/npm")
	m.Requests()
	later := upstreamtest.Day.Add(24 * time.Hour)
	records["GHSA-a-0001"] = upstreamtest.Advisory("GHSA-a-0001", "npm", "renamed", "1.0.0", later)
	records["GHSA-new"] = upstreamtest.Advisory("GHSA-new", "npm", "new", "1.0.0", later)
	// Published late: older than the newest one that the mirror has.
	records["GHSA-late"] = upstreamtest.Advisory("GHSA-late", "npm", "late", "1.0.0", upstreamtest.Day)
	delete(records, "GHSA-a-0002")
	m.SetOSV("npm", records, false)
	want(t, m.sync(t, "osv/npm"), "osv/npm", Updated)
	if asked := m.Requests(); len(asked) != 4 || upstreamtest.Count(asked, "all.zip") != 0 {
		t.Errorf("requested were %q", asked)
	}
	db := m.database(t)
	for name, n := range map[string]int{
		"GHSA-a-0000": 1, "GHSA-a-0001": 0, "renamed": 1, "new": 1, "late": 1, "GHSA-a-0002": 0, "GHSA-a-0299": 1,
	} {
		if list, err := db.Advisories(vulndb.NPM, name); err != nil || len(list) != n {
			t.Errorf("%s has %d advisories, %v; want %d", name, len(list), err, n)
		}
	}
	want(t, m.sync(t, "osv/npm"), "osv/npm", Current)

	// A removed record comes back, another changes again: the file of changes has each once.
	records["GHSA-a-0002"] = upstreamtest.Advisory("GHSA-a-0002", "npm", "back", "1.0.0", later)
	records["GHSA-new"] = upstreamtest.Advisory("GHSA-new", "npm", "newer", "1.0.0", later.Add(time.Hour))
	m.SetOSV("npm", records, false)
	want(t, m.sync(t, "osv/npm"), "osv/npm", Updated)
	if got := m.changed(t); len(got) != 4 || !strings.Contains(got["GHSA-a-0002"], "back") ||
		!strings.Contains(got["GHSA-new"], "newer") {
		t.Errorf("changes: %q", got)
	}
	if n := m.advisories(t, vulndb.NPM, "back"); n != 1 {
		t.Errorf("%d advisories about a record that came back", n)
	}

	// With too many changes the archive is fetched, which has them all.
	for id := range npm(maxSingle + 1) {
		records["X"+id] = upstreamtest.Advisory("X"+id, "npm", id, "1.0.0", later)
	}
	m.SetOSV("npm", records, true)
	m.Requests()
	got := m.sync(t, "osv/npm")
	want(t, got, "osv/npm", Updated)
	if asked := m.Requests(); len(asked) != 3 || upstreamtest.Count(asked, "all.zip") != 1 {
		t.Errorf("requested were %q", asked)
	}
	if s := got["osv/npm"].State; len(s.Files) != 2 || s.Records() != len(records) {
		t.Errorf("%d files with %d records", len(s.Files), s.Records())
	}
}

// TestOldArchive: an archive that lacks many of the listed records is reported, and its records count.
func TestOldArchive(t *testing.T) {
	m := newMirror(t)
	records := npm(10)
	m.SetOSV("npm", records, true)
	m.sync(t, "osv/npm")
	maps.Copy(records, npm(maxSingle+20))
	m.SetOSV("npm", records, false)
	wantFailed(t, m.sync(t, "osv/npm"), "osv/npm", "all.zip is older than its modified_id.csv, which lists 510 other")
	if n := m.advisories(t, vulndb.NPM, "GHSA-a-0003"); n != 1 {
		t.Errorf("%d advisories of the archive", n)
	}
	m.SetOSV("npm", records, true)
	want(t, m.sync(t, "osv/npm"), "osv/npm", Updated)
}

// TestOldList: a list that is older than the archive removes nothing.
func TestOldList(t *testing.T) {
	m := newMirror(t)
	records := npm(10)
	m.SetOSV("npm", records, false)
	old := npm(9)
	list := &strings.Builder{}
	for id, r := range old {
		fmt.Fprintf(list, "%s,%s\n", r.Modified.Format(time.RFC3339), id)
	}
	m.SetOSV("npm", records, true)
	m.Set(upstreamtest.OSVPath("npm", "modified_id.csv"), []byte(list.String()))
	got := m.sync(t, "osv/npm")
	want(t, got, "osv/npm", Updated)
	if s := got["osv/npm"].State; s.Records() != 10 || len(s.Files) != 2 {
		t.Errorf("%d records in %d files", s.Records(), len(s.Files))
	}
}

// TestArchivesAlone: a mirror of others that has no lists is enough.
func TestArchivesAlone(t *testing.T) {
	m := newMirror(t)
	m.Remove(upstreamtest.OSVPath("npm", "modified_id.csv"))
	want(t, m.sync(t, "osv/npm"), "osv/npm", Updated)
	want(t, m.sync(t, "osv/npm"), "osv/npm", Current)
}

// TestRecordFaults: a record that is listed but missing is left out; another one in its place fails.
func TestRecordFaults(t *testing.T) {
	m := newMirror(t)
	records := npm(10)
	m.SetOSV("npm", records, true)
	m.sync(t, "osv/npm")
	for _, id := range []string{"GHSA-y", "GHSA-z"} {
		records[id] = upstreamtest.Advisory(id, "npm", id, "1.0.0", upstreamtest.Day.Add(time.Hour))
	}
	m.SetOSV("npm", records, false)
	m.Fail(upstreamtest.OSVPath("npm", "GHSA-y.json"), upstreamtest.Content([]byte(records["GHSA-z"].JSON)))
	wantFailed(t, m.sync(t, "osv/npm"), "osv/npm", "not the requested record GHSA-y")
	if got := m.changed(t); len(got) != 1 || got["GHSA-z"] == "" {
		t.Errorf("the failure concerns another record: %q", got)
	}
	m.Fail(upstreamtest.OSVPath("npm", "GHSA-y.json"), upstreamtest.Status(http.StatusNotFound))
	want(t, m.sync(t, "osv/npm"), "osv/npm", Updated)
	if got := m.changed(t); len(got) != 1 || got["GHSA-z"] == "" {
		t.Errorf("changes: %q", got)
	}
	want(t, m.sync(t, "osv/npm"), "osv/npm", Current)
}

// TestRecordsInterrupted: when the server fails, the records that were received are kept.
func TestRecordsInterrupted(t *testing.T) {
	m := newMirror(t)
	records := npm(10)
	m.SetOSV("npm", records, true)
	m.sync(t, "osv/npm")
	for _, id := range []string{"GHSA-x", "GHSA-y", "GHSA-z"} {
		records[id] = upstreamtest.Advisory(id, "npm", id, "1.0.0", upstreamtest.Day.Add(time.Hour))
	}
	m.SetOSV("npm", records, false)
	m.Fail(upstreamtest.OSVPath("npm", "GHSA-y.json"), upstreamtest.Status(http.StatusForbidden))
	wantFailed(t, m.sync(t, "osv/npm"), "osv/npm", "403")
	m.Requests()
	want(t, m.sync(t, "osv/npm"), "osv/npm", Updated)
	if asked := m.Requests(); len(asked) != 3 || len(m.changed(t)) != 3 {
		t.Errorf("requested were %q", asked)
	}
}

// TestRecordBehindList: a record that is listed before it is published, or whose former version a cache sends, is
// fetched again.
func TestRecordBehindList(t *testing.T) {
	m := newMirror(t)
	records := npm(10)
	m.SetOSV("npm", records, true)
	m.sync(t, "osv/npm")
	old := records["GHSA-a-0001"]
	records["GHSA-a-0001"] = upstreamtest.Advisory("GHSA-a-0001", "npm", "renamed", "1.0.0", m.now)
	records["GHSA-new"] = upstreamtest.Advisory("GHSA-new", "npm", "new", "1.0.0", m.now)
	m.SetOSV("npm", records, false)
	m.Fail(upstreamtest.OSVPath("npm", "GHSA-a-0001.json"), upstreamtest.Content([]byte(old.JSON)))
	m.Fail(upstreamtest.OSVPath("npm", "GHSA-new.json"), upstreamtest.Status(http.StatusNotFound))
	want(t, m.sync(t, "osv/npm"), "osv/npm", Updated)
	want(t, m.sync(t, "osv/npm"), "osv/npm", Updated)
	for _, name := range []string{"renamed", "new"} {
		if n := m.advisories(t, vulndb.NPM, name); n != 1 {
			t.Errorf("%s has %d advisories", name, n)
		}
	}
	want(t, m.sync(t, "osv/npm"), "osv/npm", Current)
}

// TestShortList: a list that lacks most records withdraws none.
func TestShortList(t *testing.T) {
	m := newMirror(t)
	m.SetOSV("npm", npm(300), true)
	m.sync(t, "osv/npm")
	m.SetOSV("npm", npm(100), false)
	m.Set(upstreamtest.OSVPath("npm", "modified_id.csv"), []byte(
		upstreamtest.Day.Add(time.Hour).Format(time.RFC3339)+",GHSA-a-0000\n"))
	wantFailed(t, m.sync(t, "osv/npm"), "osv/npm", "modified_id.csv has 1 records and had 300 before")
	if n := m.advisories(t, vulndb.NPM, "GHSA-a-0200"); n != 1 {
		t.Errorf("%d advisories", n)
	}
}

// TestRemovedFromOneEcosystem: a record that changes so that an ecosystem loses it stays in the other ones.
func TestRemovedFromOneEcosystem(t *testing.T) {
	m := newMirror(t)
	both := upstreamtest.Advisory("GHSA-both", "npm", "both", "1.0.0", upstreamtest.Day)
	records, python := npm(10), map[string]upstreamtest.Record{"GHSA-both": both}
	records["GHSA-both"] = both
	m.SetOSV("npm", records, true)
	m.SetOSV("PyPI", python, true)
	m.sync(t, "osv/npm", "osv/pypi")
	delete(records, "GHSA-both")
	python["GHSA-both"] = upstreamtest.Advisory("GHSA-both", "PyPI", "both", "1.0.0", upstreamtest.Day.Add(time.Hour))
	m.SetOSV("npm", records, false)
	m.SetOSV("PyPI", python, false)
	m.sync(t, "osv/npm", "osv/pypi")
	if python, node := m.advisories(t, vulndb.PyPI, "both"), m.advisories(t, vulndb.NPM, "both"); python != 1 ||
		node != 0 {
		t.Errorf("%d advisories of PyPI, %d of npm", python, node)
	}
}

func TestParseModifiedIDs(t *testing.T) {
	ids, err := parseModifiedIDs(strings.NewReader("modified,id\r\n2026-08-01T00:00:00.123456Z,B-1\r\n" +
		"2026-08-02T00:00:00+02:00,A-1\n2026-08-01T00:00:00Z,../../etc\n2026-08-01T00:00:00Z,x/y\n\n"))
	check(t, err)
	if got := string(ids.format()); got != "2026-08-01T22:00:00Z,A-1\n2026-08-01T00:00:00Z,B-1\n" {
		t.Errorf("got %q", got)
	}
	for _, bad := range []string{"", "x", "2026-08-01,A-1", "<html>", strings.Repeat("x", 2*maxLineBytes)} {
		if _, err := parseModifiedIDs(strings.NewReader(bad)); err == nil {
			t.Errorf("%.20q is accepted", bad)
		}
	}
	d := ids.since(modifiedIDs{"B-1": ids["B-1"], "C-1": ids["B-1"], "D-1": ids["A-1"].Add(time.Hour)})
	if !slices.Equal(d.changed, []string{"A-1"}) || !slices.Equal(d.removed, []string{"C-1"}) {
		t.Errorf("difference %+v", d)
	}
}
