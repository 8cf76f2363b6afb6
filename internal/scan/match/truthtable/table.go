package truthtable

import (
	_ "embed" // the table
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

//go:embed truth.tsv
var truthTSV string

const headerLine = "stratum\tcase\tkind\tname\tversion\textra\tvulnerability\texpected\tadvisory\tfield\treason"

// Row is one line of the table.
type Row struct {
	Line    int    // of the file
	Stratum string // group for the counts: "Go", "PyPI", ..., "adversarial"
	Case    string // the case that it is an example of

	Package catalog.Package // kind, name and version; where it matters, other packages found

	Vulnerability string // the ID in a report: a CVE, or that of the advisory
	Affected      bool   // whether a report must show it, or must not
	Unconfirmed   bool   // the match is to be marked

	Advisory string // the file that decides, by source
	Field    string // in it
	Reason   string
}

// String formats a row for users.
func (r *Row) String() string {
	return fmt.Sprintf("truth.tsv:%d (%s, %s) %s %q %q %s", r.Line, r.Stratum, r.Case, r.Package.Kind, r.Package.Name,
		r.Package.Version, r.Vulnerability)
}

// Rows reads the table.
func Rows() ([]Row, error) {
	lines := strings.Split(strings.TrimSuffix(truthTSV, "\n"), "\n")
	if lines[0] != headerLine {
		return nil, fmt.Errorf("truth.tsv: the columns are not %q", headerLine)
	}
	var rows []Row
	for i, line := range lines[1:] {
		r, err := parseRow(strings.Split(line, "\t"))
		if err != nil {
			return nil, fmt.Errorf("truth.tsv:%d: %w", i+2, err)
		}
		r.Line = i + 2
		rows = append(rows, r)
	}
	return rows, nil
}

// languageByType maps kinds of packages to the languages in the catalog.
var languageByType = map[catalog.PackageType]string{
	catalog.Gem: "ruby", catalog.Python: "python", catalog.NPM: "javascript", catalog.Java: "java", catalog.Go: "go",
	catalog.Rust: "rust", catalog.Swift: "swift",
}

func parseRow(f []string) (Row, error) {
	if len(f) != 11 {
		return Row{}, fmt.Errorf("%d columns, want 11", len(f))
	}
	kind := catalog.PackageType(f[2])
	r := Row{
		Stratum: f[0], Case: f[1], Vulnerability: f[6], Advisory: f[8], Field: f[9], Reason: f[10],
		Package: catalog.Package{
			Kind: kind, Name: f[3], Version: f[4], Language: languageByType[kind],
			Locations: []string{"/found"},
		},
	}
	switch f[7] {
	case "affected":
		r.Affected = true
	case "clean":
	default:
		return Row{}, fmt.Errorf("expected is %q, neither affected nor clean", f[7])
	}
	if kind == catalog.Runtime {
		r.Package.Locations = []string{"/usr/local/found"}
	}
	if kind.IsOS() {
		r.Package.Source, r.Package.SourceVersion = f[3], f[4]
	}
	for extra := range strings.SplitSeq(f[5], " ") {
		key, value, _ := strings.Cut(extra, "=")
		switch key {
		case "":
		case "bundle":
			r.Package.BundleIDs = []string{value}
		case "location":
			r.Package.Locations = []string{value}
		case "replaced":
			r.Package.Replaced = true
		case "distribution":
			r.Package.Distribution = value
		case "source":
			r.Package.Source = value
		case "sourceversion":
			r.Package.SourceVersion = value
		case "unconfirmed":
			r.Unconfirmed = true
		default:
			return Row{}, fmt.Errorf("unknown extra %q", extra)
		}
	}
	return r, nil
}
