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
	"github.com/buildyard/buildyard/internal/scan/match"
)

// Column is a column of a table, named by its letter.
type Column byte

// The columns. The first seven have the same letters in both scanners.
const (
	ColumnType          Column = 't'
	ColumnName          Column = 'n'
	ColumnVersion       Column = 'v'
	ColumnVulnerability Column = 'V'
	ColumnScore         Column = 's'
	ColumnSeverity      Column = 'S'
	ColumnLocation      Column = 'l'
	ColumnFixed         Column = 'f'
	ColumnExploited     Column = 'k'
	ColumnEPSS          Column = 'e'
	ColumnDistroPatched Column = 'p'
	ColumnReachable     Column = 'r'
)

// columnFormat describes the form of a column.
type columnFormat struct {
	title       string
	value       func(api.ScanMatch) string
	forPackages bool // packages without a vulnerability have it too
}

var columns = map[Column]columnFormat{
	ColumnType:          {"TYPE", func(m api.ScanMatch) string { return m.Artifact.Type }, true},
	ColumnName:          {"NAME", func(m api.ScanMatch) string { return m.Artifact.Name }, true},
	ColumnVersion:       {"VERSION", func(m api.ScanMatch) string { return m.Artifact.Version }, true},
	ColumnVulnerability: {"VULNERABILITY", func(m api.ScanMatch) string { return m.Vulnerability.ID }, false},
	ColumnScore:         {"SCORE", formatScore, false},
	ColumnSeverity:      {"SEVERITY", func(m api.ScanMatch) string { return m.Vulnerability.Severity }, false},
	ColumnLocation:      {"LOCATION", formatLocation, true},
	ColumnFixed: {"FIXED", func(m api.ScanMatch) string {
		return strings.Join(m.Vulnerability.FixedVersions, ", ")
	}, false},
	ColumnExploited: {"KEV", func(m api.ScanMatch) string {
		return map[bool]string{true: "yes"}[m.Vulnerability.Exploited]
	}, false},
	ColumnEPSS: {"EPSS", formatEPSS, false},
	ColumnDistroPatched: {"DISTRO-PATCHED", func(m api.ScanMatch) string {
		return m.Vulnerability.DistroPatched
	}, false},
	ColumnReachable: {"REACHABLE", func(m api.ScanMatch) string { return m.Vulnerability.Reachable }, false},
}

// defaultColumns are the default columns; ColumnDistroPatched and ColumnReachable follow where any match has them.
var defaultColumns = []Column{ColumnType, ColumnName, ColumnVersion, ColumnVulnerability, ColumnScore, ColumnSeverity}

// ParseColumns parses column letters such as "tnvVsS".
func ParseColumns(letters string) ([]Column, error) {
	var out []Column
	for _, l := range []byte(letters) {
		c := Column(l)
		if _, ok := columns[c]; !ok {
			return nil,
				fmt.Errorf(
					"column %q: must be t (type), n (name), v (version), V (vulnerability), s (score), S (severity), "+
						"l (location), f (fixed versions), k (known exploited), e (EPSS), p (distro-patched) or "+
						"r (reachable)",
					string(rune(l)))
		}
		if slices.Contains(out, c) {
			return nil, fmt.Errorf("column %q occurs twice", string(rune(l)))
		}
		out = append(out, c)
	}
	return out, nil
}

func formatLocation(m api.ScanMatch) string {
	paths := make([]string, len(m.Artifact.Locations))
	for i, l := range m.Artifact.Locations {
		paths[i] = l.Path
	}
	return strings.Join(paths, ", ")
}

// formatScore formats a score, and returns "" without one.
func formatScore(m api.ScanMatch) string {
	if m.Vulnerability.BaseScore == 0 {
		return ""
	}
	return strconv.FormatFloat(m.Vulnerability.BaseScore, 'f', 1, 64)
}

// formatEPSS formats a likelihood in percent. Most are below one.
func formatEPSS(m api.ScanMatch) string {
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
		if o.WholeRegistry {
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
		show = defaultColumns
		if slices.ContainsFunc(rows, mayBePatched) {
			show = append(slices.Clone(show), ColumnDistroPatched)
		}
		if slices.ContainsFunc(rows, isReachabilityKnown) {
			show = append(slices.Clone(show), ColumnReachable)
		}
	}
	if r.OnlyPackages {
		rows = packagesAsMatches(r.Packages)
		show = slices.DeleteFunc(slices.Clone(show), func(c Column) bool { return !columns[c].forPackages })
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, emptyMessage(r))
		return err
	}
	if err := writeRows(w, rows, show); err != nil {
		return err
	}
	if len(r.Coverage.NoAdvisories) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%s\n", noAdvisoriesMessage(r))
	return err
}

// writeRows writes titles and rows.
func writeRows(w io.Writer, rows []api.ScanMatch, show []Column) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	titles := make([]string, len(show))
	for i, c := range show {
		titles[i] = columns[c].title
	}
	_, _ = fmt.Fprintln(t, strings.Join(titles, "\t"))
	for _, line := range tableRows(rows, show) {
		_, _ = fmt.Fprintln(t, line)
	}
	return t.Flush()
}

// tableRows returns the rows of a table. Rows that differ only in hidden columns are merged.
func tableRows(rows []api.ScanMatch, show []Column) []string {
	var out []string
	seen := map[string]bool{}
	cells := make([]string, len(show))
	for _, m := range rows {
		for i, c := range show {
			cells[i] = sanitize.EscapeText(cmp.Or(columns[c].value(m), "-"))
		}
		line := strings.Join(cells, "\t")
		if !seen[line] {
			seen[line] = true
			out = append(out, line)
		}
	}
	return out
}

func emptyMessage(r Report) string {
	switch {
	case r.Coverage.Partial && len(r.Coverage.Volumes) == 0:
		return "Nothing could be read"
	case r.OnlyPackages:
		return "No packages found"
	case len(r.Coverage.NoAdvisories) > 0:
		return noAdvisoriesMessage(r)
	}
	return "No vulnerabilities found"
}

// mayBePatched reports whether a distribution may have patched the package of a match.
func mayBePatched(m api.ScanMatch) bool { return m.Vulnerability.DistroPatched != "" }

// isReachabilityKnown reports whether the functions of a program decided on a match.
func isReachabilityKnown(m api.ScanMatch) bool {
	return m.Vulnerability.Reachable != "" && m.Vulnerability.Reachable != string(match.LinkUnknown)
}

// noAdvisoriesMessage names what was not evaluated, one line each.
func noAdvisoriesMessage(r Report) string {
	lines := make([]string, len(r.Coverage.NoAdvisories))
	for i, n := range r.Coverage.NoAdvisories {
		lines[i] = sanitize.EscapeText(strings.ToUpper(n.Message[:min(1, len(n.Message))]) + n.Message[min(1,
			len(n.Message)):])
	}
	return strings.Join(lines, "\n")
}

func packagesAsMatches(packages []api.ScanPackage) []api.ScanMatch {
	out := make([]api.ScanMatch, len(packages))
	for i, p := range packages {
		out[i].Artifact = p
	}
	return out
}
