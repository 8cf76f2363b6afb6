package build_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/build"
)

// goRecord returns a record of Go's vulnerability database.
func goRecord(id, modified, more, affected string) string {
	return `{"schema_version": "1.3.1", "id": "` + id + `", "modified": "` + modified + `", ` + more +
		`"affected": [` + affected + `]}`
}

const (
	oldCode = `{"package": {"ecosystem": "Go", "name": "a.test/m"}, "ranges": [{"type": "SEMVER", "events":
		[{"introduced": "0"}]}], "ecosystem_specific": {"imports": [{"path": "a.test/m", "symbols": ["Old"]}]}}`
	newCode = `{"package": {"ecosystem": "Go", "name": "a.test/m"}, "ranges": [{"type": "SEMVER", "events":
		[{"introduced": "0"}]}], "ecosystem_specific": {"imports": [{"path": "a.test/m", "symbols": ["T.New", "New",
		"T.New"], "goos": ["windows"]}, {"path": "a.test/m/whole"}]}}`
	twoRanges = `{"package": {"ecosystem": "Go", "name": "stdlib"}, "ranges": [{"type": "SEMVER", "events":
		[{"introduced": "0"}, {"fixed": "1.20.11"}]}], "ecosystem_specific": {"imports": [{"path": "path/filepath",
		"symbols": ["Abs", "join"]}]}}, {"package": {"ecosystem": "Go", "name": "stdlib"}, "ranges": [{"type": "SEMVER",
		"events": [{"introduced": "1.20.11"}, {"fixed": "1.20.12"}]}], "ecosystem_specific": {"imports": [{"path":
		"path/filepath", "symbols": ["Abs"]}]}}`
	noCode = `{"package": {"ecosystem": "Go", "name": "a.test/none"}, "ranges": [{"type": "SEMVER", "events":
		[{"introduced": "0"}]}], "ecosystem_specific": {"imports": 7}}, {"package": {"ecosystem": "npm", "name":
		"b"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}], "ecosystem_specific": {"imports":
		[{"path": "b"}]}}`
	emptyName = `{"package": {"ecosystem": "Go", "name": "a.test/m"}, "ranges": [{"type": "SEMVER", "events":
		[{"introduced": "0"}]}], "ecosystem_specific": {"imports": [{"path": "a.test/m", "symbols": [""]}]}}`
)

// TestCode: the newest revision of a record decides, ranges are stored where they decide, and what cannot be stored is
// named.
func TestCode(t *testing.T) {
	dir := t.TempDir()
	const day = "2024-01-01T00:00:00Z"
	for name, text := range map[string]string{
		"1.json": goRecord("GO-2024-0001", day, "", oldCode),
		"2.json": goRecord("GO-2024-0001", "2024-02-01T00:00:00Z", "", newCode),
		"3.json": goRecord("GO-2024-0002", day, "", twoRanges),
		"4.json": goRecord("GO-2024-0003", day, "", noCode),
		"5.json": goRecord("GO-2024-0004", day, `"withdrawn": "2024-01-01T00:00:00Z",`, oldCode),
		"6.json": goRecord("GO-2024-0005", day, "", emptyName),
	} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	target := filepath.Join(t.TempDir(), "db")
	report, err := build.Build(t.Context(), build.Options{Inputs: []string{dir}, Target: target})
	check(t, err)
	var rejected []string
	for _, s := range report.Sources {
		for _, r := range s.Rejections {
			rejected = append(rejected, r.Record+": "+r.Reason)
		}
	}
	want := []string{"GO-2024-0005: a.test/m: the vulnerable code is not used: a name has 0 bytes"}
	if diff := cmp.Diff(want, rejected); diff != "" {
		t.Error(diff)
	}
	db := open(t, target)
	check(t, db.Verify(t.Context()))
	for _, want := range []vulndb.AdvisoryCode{
		{ID: "GO-2024-0001", Module: "a.test/m", Code: []vulndb.AffectedCode{{Packages: []vulndb.CodePackage{
			{Path: "a.test/m", Symbols: []string{"New", "T.New"}, GOOS: []string{"windows"}}, {Path: "a.test/m/whole"},
		}}}},
		{ID: "GO-2024-0002", Module: "stdlib", Code: []vulndb.AffectedCode{
			{Ranges: []vulndb.Range{{Fixed: "1.20.11"}}, Packages: []vulndb.CodePackage{
				{Path: "path/filepath", Symbols: []string{"Abs", "join"}},
			}},
			{Ranges: []vulndb.Range{{Introduced: "1.20.11", Fixed: "1.20.12"}}, Packages: []vulndb.CodePackage{
				{Path: "path/filepath", Symbols: []string{"Abs"}},
			}},
		}},
		{ID: "GO-2024-0003", Module: "a.test/none"},
		{ID: "GO-2024-0003", Module: "b"},
		{ID: "GO-2024-0004", Module: "a.test/m"},
		{ID: "GO-2024-0005", Module: "a.test/m"},
	} {
		got, err := db.AffectedCode(want.ID, want.Module)
		check(t, err)
		if diff := cmp.Diff(want.Code, got); diff != "" {
			t.Errorf("%s of %s: %s", want.ID, want.Module, diff)
		}
	}
}
