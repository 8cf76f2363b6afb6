package truthtable

import (
	"archive/tar"
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// flip is a row whose answer is reversed by an edit of the advisory that it cites.
type flip struct {
	row      *Row
	old, new string // the fix in the advisory, and in the edited copy
}

// carried returns every file of the archives by its name.
func carried(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, set := range AdvisorySets {
		err := ReadSet("testdata", set, func(name string, data []byte) error {
			out[name] = data
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// fixes matches, in any of the forms, the fixed version of a record, which is the second group.
var fixes = regexp.MustCompile(
	`(?m)("fixed": ?"|"versionEndExcluding": ?"|fixed: ['"]?|['"](?:[^'"]*, ?)?(?:>=|~>|\^|=) ?)([^"',\s]+)`)

// edited returns a copy of a record with another fix.
func edited(data []byte, old, to string) []byte {
	text, out, at := string(data), "", 0
	for {
		m := fixes.FindStringSubmatchIndex(text[at:])
		if m == nil {
			return []byte(out + text[at:])
		}
		from, end := at+m[4], at+m[5]
		out += text[at:from]
		if at = end; text[from:end] == old {
			out += to
			continue
		}
		out += text[from:end]
	}
}

var lastNumber = regexp.MustCompile(`^(.*?)(\d+)(\D*)$`)

// raised returns a version with its last number incremented.
func raised(version string) string {
	m := lastNumber.FindStringSubmatch(version)
	if m == nil {
		return ""
	}
	return m[1] + plusOne(m[2]) + m[3]
}

// flips finds rows whose answer depends on one fix: a version that is just fixed is affected when
// the fix comes one later, and one that is affected is not when it is the fix itself.
func flips(t *testing.T, files map[string][]byte, all []Row) []flip {
	t.Helper()
	var out []flip
	for i := range all {
		r := &all[i]
		data := files[r.Advisory]
		less := orders[ecosystems[r.Package.Kind]]
		if less == nil || strings.HasPrefix(r.Advisory, "nvd-overrides/") {
			less = func(a, b string) (int, bool) { return compareLoose(a, b), true }
		}
		named := map[string]bool{}
		for _, m := range fixes.FindAllSubmatch(data, -1) {
			named[string(m[2])] = true
		}
		version := r.Package.Version
		if !r.Affected {
			if named[version] {
				out = append(out, flip{r, version, raised(version)})
			}
			continue
		}
		next := "" // the nearest fix above
		for fix := range named {
			if c, ok := less(fix, version); !ok || c <= 0 {
				continue
			}
			if c, _ := less(fix, next); next == "" || c < 0 {
				next = fix
			}
		}
		// A patch of the first affected version leaves nothing, and another source decides.
		if next == "" || listed(data, version) || strings.Contains(string(data), "< "+version) {
			continue
		}
		if version, _ = splitRevision(version); !strings.HasPrefix(r.Advisory, "nvd-overrides/") {
			version = r.Package.Version
		}
		f := flip{r, next, version}
		if hangs(f, files) {
			out = append(out, f)
		}
	}
	return out
}

// hangs reports whether the fix decides for the version: not that of another package of the record,
// or of a later branch.
func hangs(f flip, files map[string][]byte) bool {
	n, id := newNaive(), []byte(strings.TrimPrefix(f.row.Vulnerability, "CVE-"))
	for name, data := range files {
		if name == f.row.Advisory {
			data = edited(data, f.old, f.new)
		} else if !bytes.Contains(data, id) {
			continue
		}
		if n.add(name, data) != nil {
			return false
		}
	}
	affected, _ := n.judge(&f.row.Package, f.row.Vulnerability)
	return !affected
}

// listed reports whether a record names the version in a list, which no range overrides.
func listed(data []byte, version string) bool {
	return regexp.MustCompile(`(?m)(^\s*- ['"]?|"versions":\[[^]]*")` + regexp.QuoteMeta(version) +
		`(['"]|$)`).Match(data)
}

// rounds groups flips so that no two of a group edit the same record or concern the same package.
func rounds(all []flip) [][]flip {
	var out [][]flip
	for len(all) > 0 {
		var round, rest []flip
		taken := map[string]bool{}
		for _, f := range all {
			key := string(f.row.Package.Kind) + f.row.Package.Name
			if taken[f.row.Advisory] || taken[key] {
				rest = append(rest, f)
				continue
			}
			taken[f.row.Advisory], taken[key] = true, true
			round = append(round, f)
		}
		out, all = append(out, round), rest
	}
	return out
}

// archived writes files into archives of their sets and returns the directory.
func archived(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for _, set := range AdvisorySets {
		var packed bytes.Buffer
		z, err := zstd.NewWriter(&packed)
		if err != nil {
			t.Fatal(err)
		}
		w := tar.NewWriter(z)
		for name, data := range files {
			inside, ok := strings.CutPrefix(name, set+"/")
			if !ok {
				continue
			}
			if err := w.WriteHeader(&tar.Header{
				Typeflag: tar.TypeReg, Name: inside, Mode: 0o600, Size: int64(len(data)),
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(data); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), z.Close(),
			os.WriteFile(filepath.Join(dir, set+".tar.zst"), packed.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAnotherFixTurnsTheAnswer(t *testing.T) {
	files, all := carried(t), rows(t)
	turned := flips(t, files, all)
	if len(turned) < 250 {
		t.Errorf("%d rows hang on a fix, expected 250", len(turned))
	}
	for _, round := range rounds(turned) {
		copies := maps.Clone(files)
		var packages []catalog.Package
		for _, f := range round {
			copies[f.row.Advisory] = edited(files[f.row.Advisory], f.old, f.new)
			packages = append(packages, f.row.Package)
		}
		n := newNaive()
		for name, data := range copies {
			if err := n.add(name, data); err != nil {
				t.Fatal(err)
			}
		}
		answers := ask(t, database(t, archived(t, copies)), packages, nil)
		for i, f := range round {
			if affected, _ := n.judge(&f.row.Package, f.row.Vulnerability); affected == f.row.Affected {
				t.Errorf("%v: the naive matcher still says %v when the fix is %s, not %s", f.row, affected, f.new,
					f.old)
			}
			if _, affected := answers[i][f.row.Vulnerability]; affected == f.row.Affected {
				t.Errorf("%v: the matcher still says %v when the fix is %s, not %s", f.row, affected, f.new, f.old)
			}
		}
	}
	t.Logf("%d of %d rows, in %d rounds, were turned by another fix", len(turned), len(all), len(rounds(turned)))
}
