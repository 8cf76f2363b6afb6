package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/sanitize"
)

// Column is a column of a table, named by its letter.
type Column byte

// The columns. The first seven have the same letters in both scanners.
const (
	Type          Column = 't'
	Name          Column = 'n'
	Version       Column = 'v'
	Vulnerability Column = 'V'
	Score         Column = 's'
	Severity      Column = 'S'
	Location      Column = 'l'
	Fixed         Column = 'f'
	Exploited     Column = 'k'
	EPSS          Column = 'e'
)

// column describes the form of a column.
type column struct {
	title    string
	ofMatch  func(api.ScanMatch) string
	packages bool // packages without a vulnerability have it too
}

var columns = map[Column]column{
	Type:          {"TYPE", func(m api.ScanMatch) string { return m.Artifact.Type }, true},
	Name:          {"NAME", func(m api.ScanMatch) string { return m.Artifact.Name }, true},
	Version:       {"VERSION", func(m api.ScanMatch) string { return m.Artifact.Version }, true},
	Vulnerability: {"VULNERABILITY", func(m api.ScanMatch) string { return m.Vulnerability.ID }, false},
	Score:         {"SCORE", score, false},
	Severity:      {"SEVERITY", func(m api.ScanMatch) string { return m.Vulnerability.Severity }, false},
	Location:      {"LOCATION", location, true},
	Fixed: {"FIXED", func(m api.ScanMatch) string {
		return strings.Join(m.Vulnerability.FixedVersions, ", ")
	}, false},
	Exploited: {"KEV", func(m api.ScanMatch) string {
		return map[bool]string{true: "yes"}[m.Vulnerability.Exploited]
	}, false},
	EPSS: {"EPSS", epss, false},
}

// standard are the default columns.
var standard = []Column{Type, Name, Version, Vulnerability, Score, Severity}

// ParseColumns parses column letters such as "tnvVsS".
func ParseColumns(letters string) ([]Column, error) {
	var out []Column
	for _, l := range []byte(letters) {
		c := Column(l)
		if _, ok := columns[c]; !ok {
			return nil,
				fmt.Errorf(
					"column %q: must be t (type), n (name), v (version), V (vulnerability), s (score), S (severity), "+
						"l (location), f (fixed versions), k (known exploited) or e (EPSS)", string(rune(l)))
		}
		if slices.Contains(out, c) {
			return nil, fmt.Errorf("column %q is given twice", string(rune(l)))
		}
		out = append(out, c)
	}
	return out, nil
}

func location(m api.ScanMatch) string {
	paths := make([]string, len(m.Artifact.Locations))
	for i, l := range m.Artifact.Locations {
		paths[i] = l.Path
	}
	return strings.Join(paths, ", ")
}

// score formats a score, and returns "" without one.
func score(m api.ScanMatch) string {
	if m.Vulnerability.BaseScore == 0 {
		return ""
	}
	return strconv.FormatFloat(m.Vulnerability.BaseScore, 'f', 1, 64)
}

// epss formats a likelihood in percent. Most are below one.
func epss(m api.ScanMatch) string {
	switch p := m.Vulnerability.EPSS * 100; {
	case p == 0:
		return ""
	case p < 0.01:
		return "<0.01%"
	case p < 1:
		return strconv.FormatFloat(p, 'f', 2, 64) + "%"
	default:
		return strconv.FormatFloat(p, 'f', 1, 64) + "%"
	}
}

func writeTables(w io.Writer, reports []Report, o Options) error {
	for i, r := range reports {
		if o.All {
			gap := ""
			if i > 0 {
				gap = "\n"
			}
			if _, err := fmt.Fprintf(w, "%s%s:%s\n", gap, sanitize.EscapeText(r.Source.Type),
				sanitize.EscapeText(r.Source.Target)); err != nil {
				return err
			}
		}
		if err := writeTable(w, r, o); err != nil {
			return err
		}
	}
	return nil
}

func writeTable(w io.Writer, r Report, o Options) error {
	rows := r.Matches
	show := o.Columns
	if show == nil {
		show = standard
	}
	if r.OnlyPackages {
		rows = asMatches(r.Packages)
		show = slices.DeleteFunc(slices.Clone(show), func(c Column) bool { return !columns[c].packages })
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, nothing(r))
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	titles := make([]string, len(show))
	for i, c := range show {
		titles[i] = columns[c].title
	}
	_, _ = fmt.Fprintln(t, strings.Join(titles, "\t"))
	for _, line := range lines(rows, show) {
		_, _ = fmt.Fprintln(t, line)
	}
	return t.Flush()
}

// lines returns the rows of a table. Rows that differ only in hidden columns are merged.
func lines(rows []api.ScanMatch, show []Column) []string {
	var out []string
	seen := map[string]bool{}
	cells := make([]string, len(show))
	for _, m := range rows {
		for i, c := range show {
			cells[i] = sanitize.EscapeText(cmp.Or(columns[c].ofMatch(m), "-"))
		}
		line := strings.Join(cells, "\t")
		if !seen[line] {
			seen[line] = true
			out = append(out, line)
		}
	}
	return out
}

func nothing(r Report) string {
	switch {
	case r.Coverage.Partial && len(r.Coverage.Volumes) == 0:
		return "Nothing could be read"
	case r.OnlyPackages:
		return "No packages found"
	}
	return "No vulnerabilities found"
}

func asMatches(packages []api.ScanPackage) []api.ScanMatch {
	out := make([]api.ScanMatch, len(packages))
	for i, p := range packages {
		out[i].Artifact = p
	}
	return out
}
