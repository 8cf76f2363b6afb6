package match

import (
	"fmt"
	"slices"
	"strings"

	"github.com/facebookincubator/nvdtools/wfn"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// DefaultIgnored is left out when a configuration has no list: macOS includes it and names it like
// a program for Windows.
const DefaultIgnored = "cpe:/a:apple:icloud:1.0"

// Rules leave findings out, and count them. The zero value leaves out nothing but packages that are
// ignored by default.
type Rules struct {
	// Packages are CPEs in their URI form, compared exactly. Nil is DefaultIgnored; a list that is
	// empty, or has only "", ignores none.
	Packages []string
	CVEs     []string

	MinScore    float64         // 0 sets no minimum
	MinSeverity vulndb.Severity // "" sets no minimum

	// VEX suppresses findings by VEX statements; nil suppresses none.
	VEX interface {
		// Suppresses returns the status of the statement that suppresses a finding. It is called
		// concurrently.
		Suppresses(f *Finding) (status string, ok bool)
	}
	// Baseline has the findings known before; nil has none.
	Baseline *Baseline
}

// severities are in ascending order.
var severities = []vulndb.Severity{vulndb.Unknown, vulndb.Low, vulndb.Medium, vulndb.High, vulndb.Critical}

// ParseSeverity parses the severity a user entered.
func ParseSeverity(s string) (vulndb.Severity, error) {
	v := vulndb.Severity(strings.ToLower(strings.TrimSpace(s)))
	if v == vulndb.Unknown || !slices.Contains(severities, v) {
		return "", fmt.Errorf("invalid severity %q: want low, medium, high or critical", s)
	}
	return v, nil
}

// below reports whether a severity is less than another.
func below(a, b vulndb.Severity) bool {
	return slices.Index(severities, a) < slices.Index(severities, b)
}

// ignored returns the CPEs of ignored packages as formatted strings.
func (r *Rules) ignored() (map[string]bool, error) {
	list := r.Packages
	if list == nil {
		list = []string{DefaultIgnored}
	}
	out := map[string]bool{}
	for _, uri := range list {
		if uri == "" {
			continue
		}
		if !strings.HasPrefix(uri, "cpe:/") {
			return nil, fmt.Errorf("ignored package %q is not a CPE in its URI form (cpe:/a:vendor:product:version)",
				uri)
		}
		a, err := wfn.UnbindURI(uri)
		if err != nil {
			return nil, fmt.Errorf("ignored package %q: %w", uri, err)
		}
		out[a.BindToFmtString()] = true
	}
	return out, nil
}

// suppression is why a finding is left out.
type suppression int

const (
	shown suppression = iota
	byPackage
	byCVE
	byVEX
	byBaseline
	byMinimum
	byUnknown
)

// keep applies the rules to a finding, and counts or keeps it.
func (j *matcher) keep(f *Finding) {
	why, words := j.rule(f)
	h := &j.result.Hidden
	switch why {
	case shown:
		if isUnknown(f.Vulnerability.Score) {
			j.result.UnknownScores++
		}
		j.found = append(j.found, f)
		return
	case byPackage:
		h.Packages++
	case byCVE:
		h.CVEs++
	case byVEX:
		h.VEX++
	case byBaseline:
		h.Baseline++
	case byMinimum:
		h.Minimum++
	case byUnknown:
		h.Unknown++
	}
	j.story.add("It is left out: %s.", words)
}

// rule returns the first rule that leaves a finding out, and its description.
func (j *matcher) rule(f *Finding) (suppression, string) {
	r := &j.options.Rules
	if c := j.ignoredCPE(&f.Package); c != "" {
		return byPackage, "its package is ignored as " + c
	}
	if slices.ContainsFunc(r.CVEs, func(id string) bool { return strings.EqualFold(id, f.Vulnerability.ID) }) {
		return byCVE, f.Vulnerability.ID + " is ignored"
	}
	if r.VEX != nil {
		if status, ok := r.VEX.Suppresses(f); ok {
			return byVEX, "a VEX statement says " + status
		}
	}
	if r.Baseline.Has(f) {
		return byBaseline, "the baseline has it"
	}
	return r.minimum(f.Vulnerability.Score)
}

// minimum suppresses findings below the minimum, and those of unknown score or severity.
func (r *Rules) minimum(s vulndb.Score) (suppression, string) {
	switch {
	case r.MinScore > 0 && isUnknown(s):
		return byUnknown, "its score is unknown, while a least one is asked for"
	case r.MinSeverity != "" && (s.Severity == vulndb.Unknown || s.Severity == ""):
		return byUnknown, "its severity is unknown, while a least one is asked for"
	case s.Base < r.MinScore:
		return byMinimum, fmt.Sprintf("its score %.1f is below %.1f", s.Base, r.MinScore)
	case below(s.Severity, r.MinSeverity):
		return byMinimum, fmt.Sprintf("its severity %s is below %s", s.Severity, r.MinSeverity)
	}
	return shown, ""
}

// ignoredCPE returns the CPE for which a package is ignored, "" for none.
func (j *matcher) ignoredCPE(p *catalog.Package) string {
	for _, c := range p.CPEs {
		if j.ignored[c] {
			return c
		}
	}
	return ""
}

// isUnknown reports whether a score is missing. One of 0.0 counts as none, also when computed from a
// vector: its severity is unknown, too.
func isUnknown(s vulndb.Score) bool { return s.Base == 0 }
