package ignore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/glob"
	"github.com/buildyard/buildyard/internal/scan/match"
)

// MaxRules is the maximum number of rules.
const MaxRules = 1000

// Rule is a rule as the configuration file has it. What it names must all hold.
type Rule struct {
	ID      string `yaml:"id"`      // of the CVE or of an advisory; "": all
	Package string `yaml:"package"` // pattern of the name, or of kind/name; "": all
	Path    string `yaml:"path"`    // pattern of the location; "": all
	Reason  string `yaml:"reason"`  // required
	Expires string `yaml:"expires"` // last day of the rule in UTC, 2026-12-31; "": it does not expire
}

// String names the rule by what it is about.
func (r Rule) String() string {
	var parts []string
	for _, p := range [][2]string{{"id", r.ID}, {"package", r.Package}, {"path", r.Path}} {
		if p[1] != "" {
			parts = append(parts, p[0]+" "+p[1])
		}
	}
	return strings.Join(parts, ", ")
}

// Rules are compiled rules. They are safe for concurrent use.
type Rules struct {
	rules []compiled
	now   func() time.Time
}

type compiled struct {
	Rule
	pkg, path *glob.Pattern // nil: all
	end       time.Time     // when it expires; zero is never
}

var _ match.IgnoreRules = (*Rules)(nil)

// Compile checks and compiles rules. None is nil. now is the clock that decides which rules expired; nil is time.Now.
func Compile(rules []Rule, now func() time.Time) (*Rules, error) {
	switch {
	case len(rules) == 0:
		return nil, nil
	case len(rules) > MaxRules:
		return nil, fmt.Errorf("ignore: %d rules are more than %d", len(rules), MaxRules)
	case now == nil:
		now = time.Now
	}
	out := &Rules{rules: make([]compiled, len(rules)), now: now}
	for i, r := range rules {
		var err error
		if out.rules[i], err = r.compile(); err != nil {
			return nil, fmt.Errorf("ignore: rule %d: %w", i+1, err)
		}
	}
	return out, nil
}

func (r Rule) compile() (c compiled, err error) {
	c.Rule = r
	switch {
	case r.ID == "" && r.Package == "" && r.Path == "":
		return c, errors.New("it has none of id, package and path, and would ignore everything: add one of them")
	case strings.TrimSpace(r.Reason) == "":
		return c, errors.New(`it has no reason: add a line such as reason: "not reachable from our code"`)
	}
	if r.Package != "" {
		if c.pkg, err = glob.Compile(r.Package); err != nil {
			return c, fmt.Errorf("package: %w", err)
		}
	}
	if r.Path != "" {
		if c.path, err = glob.CompilePath(r.Path); err != nil {
			return c, fmt.Errorf("path: %w", err)
		}
	}
	if r.Expires != "" {
		day, err := time.Parse(time.DateOnly, r.Expires)
		if err != nil {
			return c, fmt.Errorf("invalid expires %q: want a date such as 2026-12-31", r.Expires)
		}
		c.end = day.AddDate(0, 0, 1)
	}
	return c, nil
}

// List returns the rules, in the order of their numbers.
func (r *Rules) List() []Rule {
	if r == nil {
		return nil
	}
	out := make([]Rule, len(r.rules))
	for i := range r.rules {
		out[i] = r.rules[i].Rule
	}
	return out
}

// Expired reports whether the rule with a number no longer applies.
func (r *Rules) Expired(rule int) bool { return r.rules[rule].expired(r.now()) }

// Warnings are sentences about the rules that expired.
func (r *Rules) Warnings() []string {
	var out []string
	for i, rule := range r.List() {
		if r.Expired(i) {
			out = append(out, fmt.Sprintf("ignore rule %d (%s) expired after %s and no longer applies", i+1, rule,
				rule.Expires))
		}
	}
	return out
}

// RuleFor implements match.IgnoreRules.
func (r *Rules) RuleFor(f *match.Finding, location string) (rule int, ok bool) {
	now := r.now()
	for i := range r.rules {
		if c := &r.rules[i]; c.matches(f, location) && !c.expired(now) {
			return i, true
		}
	}
	return 0, false
}

// Describe implements match.IgnoreRules.
func (r *Rules) Describe(rule int) string {
	return fmt.Sprintf("ignore rule %d (%s): %s", rule+1, r.rules[rule].Rule, r.rules[rule].Reason)
}

func (c *compiled) expired(now time.Time) bool { return !c.end.IsZero() && !now.Before(c.end) }

func (c *compiled) matches(f *match.Finding, location string) bool {
	if c.ID != "" && !hasID(f, c.ID) {
		return false
	}
	if c.pkg != nil && !c.matchesPackage(&f.Package) {
		return false
	}
	return c.path == nil ||
		location != "" && (c.path.Match(location) || c.path.Match(catalog.FileOf(location)))
}

// matchesPackage compares the name of a package. Those of Python have several spellings, of which reports show one.
func (c *compiled) matchesPackage(p *catalog.Package) bool {
	names := []string{p.Name}
	if p.Kind == catalog.Python {
		names = append(names, catalog.PythonName(p.Name))
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return c.pkg.Match(name) || c.pkg.Match(string(p.Kind)+"/"+name)
	})
}

// hasID reports whether a finding, or an advisory about it, has an ID.
func hasID(f *match.Finding, id string) bool {
	return strings.EqualFold(f.Vulnerability.ID, id) || strings.EqualFold(f.Advisory, id) ||
		slices.ContainsFunc(f.Vulnerability.Related, func(r string) bool { return strings.EqualFold(r, id) })
}
