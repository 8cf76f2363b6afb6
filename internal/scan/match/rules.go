package match

import (
	"fmt"
	"slices"
	"strings"

	"github.com/facebookincubator/nvdtools/wfn"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// DefaultIgnoredPackage is left out when a configuration has no list: macOSPlatform includes it and names it like
// a program for Windows.
const DefaultIgnoredPackage = "cpe:/a:apple:icloud:1.0"

// Rules leave findings out, and count them. The zero value leaves out nothing but packages that are
// ignored by default.
type Rules struct {
	// IgnoredPackages are CPEs in their URI form, compared exactly. Nil is DefaultIgnoredPackage; a list that is
	// empty, or has only "", ignores none.
	IgnoredPackages []string
	IgnoredCVEs     []string

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
	// Ignore leaves findings out by rules of the configuration; nil has none.
	Ignore IgnoreRules

	OnlyFixed bool // leave out findings for which no advisory names a fixed version
}

// IgnoreRules are rules that leave findings out, numbered from 0. They are called concurrently.
type IgnoreRules interface {
	// RuleFor returns the rule that leaves a finding out at a location of its package, and false when none does. A
	// package without a location has the location "".
	RuleFor(f *Finding, location string) (rule int, ok bool)
	// Describe returns a rule and its reason in words.
	Describe(rule int) string
}

// severitiesAscending are in ascending order.
var severitiesAscending = []vulndb.Severity{vulndb.Unknown, vulndb.Low, vulndb.Medium, vulndb.High, vulndb.Critical}

// ParseSeverity parses the severity a user entered.
func ParseSeverity(s string) (vulndb.Severity, error) {
	v := vulndb.Severity(strings.ToLower(strings.TrimSpace(s)))
	if v == vulndb.Unknown || !slices.Contains(severitiesAscending, v) {
		return "", fmt.Errorf("invalid severity %q: want low, medium, high or critical", s)
	}
	return v, nil
}

// isBelow reports whether a severity is less than another.
func isBelow(a, b vulndb.Severity) bool {
	return slices.Index(severitiesAscending, a) < slices.Index(severitiesAscending, b)
}

// ignoredCPEs returns the CPEs of ignored packages as formatted strings.
func (r *Rules) ignoredCPEs() (map[string]bool, error) {
	list := r.IgnoredPackages
	if list == nil {
		list = []string{DefaultIgnoredPackage}
	}
	out := map[string]bool{}
	for _, uri := range list {
		if uri == "" {
			continue
		}
		if !strings.HasPrefix(uri, "cpe:/") {
			return nil, fmt.Errorf("ignored package %q is not a CPE URI (cpe:/a:vendor:product:version)",
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
	notSuppressed suppression = iota
	suppressedByPackage
	suppressedByCVE
	suppressedByVEX
	suppressedByBaseline
	suppressedByMinimum
	suppressedByUnknown
	suppressedByIgnoreRule
	suppressedAsNotFixed
)

// addFinding applies the rules to a finding, and counts or keeps it.
func (j *matcher) addFinding(f *Finding) {
	why, words := j.suppressingRule(f)
	if why == notSuppressed {
		why, words = j.applyIgnoreRules(f)
	}
	h := &j.result.Suppressed
	switch why {
	case notSuppressed:
		if isUnknownScore(f.Vulnerability.Score) {
			j.result.UnknownScores++
		}
		j.findings = append(j.findings, f)
		return
	case suppressedByPackage:
		h.Packages++
	case suppressedByCVE:
		h.CVEs++
	case suppressedByVEX:
		h.VEX++
	case suppressedByBaseline:
		h.Baseline++
	case suppressedByMinimum:
		h.BelowMinimum++
	case suppressedByUnknown:
		h.UnknownScore++
	case suppressedByIgnoreRule:
		h.IgnoreRules++
	case suppressedAsNotFixed:
		h.NotFixed++
	}
	j.trace.add("It is left out: %s.", words)
}

// suppressingRule returns the first rule that leaves a finding out, and its description.
func (j *matcher) suppressingRule(f *Finding) (suppression, string) {
	r := &j.options.Rules
	if c := j.ignoredCPE(&f.Package); c != "" {
		return suppressedByPackage, "its package is ignored as " + c
	}
	if slices.ContainsFunc(r.IgnoredCVEs, func(id string) bool { return strings.EqualFold(id, f.Vulnerability.ID) }) {
		return suppressedByCVE, f.Vulnerability.ID + " is ignored"
	}
	if r.VEX != nil {
		if status, ok := r.VEX.Suppresses(f); ok {
			return suppressedByVEX, "a VEX statement says " + status
		}
	}
	if r.Baseline.Has(f) {
		return suppressedByBaseline, "the baseline has it"
	}
	if r.OnlyFixed && len(f.Fixed) == 0 {
		return suppressedAsNotFixed, "no advisory names a fixed version"
	}
	return r.belowMinimum(f.Vulnerability.Score)
}

// applyIgnoreRules removes the locations of a finding that a rule ignores, and counts the finding once for each such
// rule. A finding at none of whose locations anything is left is suppressed.
func (j *matcher) applyIgnoreRules(f *Finding) (suppression, string) {
	kept, rules := j.options.Rules.splitIgnored(f)
	for _, rule := range rules {
		if j.result.IgnoredByRule == nil {
			j.result.IgnoredByRule = map[int]int{}
		}
		j.result.IgnoredByRule[rule]++
		j.trace.add("It matches %s.", j.options.Rules.Ignore.Describe(rule))
	}
	switch {
	case len(rules) == 0:
		return notSuppressed, ""
	case len(kept) == 0:
		return suppressedByIgnoreRule, "rules ignore it at every location"
	}
	f.Package.Locations = kept
	return notSuppressed, ""
}

// splitIgnored returns the locations of a finding that no rule ignores, and the rules that ignore the others.
func (r *Rules) splitIgnored(f *Finding) (kept []string, rules []int) {
	if r.Ignore == nil {
		return f.Package.Locations, nil
	}
	locations := f.Package.Locations
	if len(locations) == 0 {
		locations = []string{""}
	}
	for _, l := range locations {
		switch rule, ok := r.Ignore.RuleFor(f, l); {
		case !ok:
			kept = append(kept, l)
		case !slices.Contains(rules, rule):
			rules = append(rules, rule)
		}
	}
	return kept, rules
}

// belowMinimum suppresses findings below the minimum, and those of unknown score or severity.
func (r *Rules) belowMinimum(s vulndb.Score) (suppression, string) {
	switch {
	case r.MinScore > 0 && isUnknownScore(s):
		return suppressedByUnknown, "its score is unknown, and a minimum score is required"
	case r.MinSeverity != "" && (s.Severity == vulndb.Unknown || s.Severity == ""):
		return suppressedByUnknown, "its severity is unknown, and a minimum severity is required"
	case s.Base < r.MinScore:
		return suppressedByMinimum, fmt.Sprintf("its score %.1f is below %.1f", s.Base, r.MinScore)
	case isBelow(s.Severity, r.MinSeverity):
		return suppressedByMinimum, fmt.Sprintf("its severity %s is below %s", s.Severity, r.MinSeverity)
	}
	return notSuppressed, ""
}

// ignoredCPE returns the CPE for which a package is ignored, "" for none.
func (j *matcher) ignoredCPE(p *catalog.Package) string {
	for _, c := range p.CPEs {
		if j.ignoredCPEs[c] {
			return c
		}
	}
	return ""
}

// isUnknownScore reports whether a score is missing. One of 0.0 counts as none, also when computed from a
// vector: its severity is unknown, too.
func isUnknownScore(s vulndb.Score) bool { return s.Base == 0 }
