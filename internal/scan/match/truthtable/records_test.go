package truthtable

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// record is one source's record of one package.
type record struct {
	file        string
	source      string // "go", "ghsa", "pypa", "rustsec", "rubysec", "homebrew"
	ecosystem   string
	name        string
	ids         []string // the IDs in reports: its CVEs, or its own ID
	held        func(version string) bool
	bounds      []string                  // versions that its ranges name
	unconfirmed func(version string) bool // only a range without an end of an unreviewed record contains it
}

// osv is a record in the form of OSV, with the fields that decide.
type osv struct {
	ID        string
	Aliases   []string
	Upstream  []string
	Related   []string
	Withdrawn string
	Affected  []struct {
		Package  struct{ Ecosystem, Name string }
		Ranges   []osvRange
		Versions []string
	}
	DatabaseSpecific struct {
		ReviewStatus string `json:"review_status" yaml:"review_status"`
	} `json:"database_specific" yaml:"database_specific"`
}

type osvRange struct {
	Type   string
	Events []map[string]string
}

// osvSources maps a set of records in the form of OSV to its source.
var osvSources = map[string]string{
	"govulndb-osv": "go", "ghsa-sample": "ghsa", "brew": "homebrew", "pypa": "pypa",
	CarriedSet: CarriedSet, SwiftSet: "ghsa",
}

// parseRecords parses a file of a set. Files without package records return none.
func parseRecords(name string, data []byte) ([]*record, error) {
	set, _, _ := strings.Cut(name, "/")
	switch {
	case osvSources[set] != "" && path.Ext(name) == ".json":
		var o osv
		if err := json.Unmarshal(data, &o); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return osvRecords(name, osvSources[set], &o), nil
	case set == "pypa" && path.Ext(name) == ".yaml":
		var o osv
		if err := yaml.Unmarshal(data, &o); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return osvRecords(name, "pypa", &o), nil
	case set == "rubysec" && (strings.HasPrefix(name, "rubysec/gems/") || strings.HasPrefix(name, "rubysec/rubies/")):
		return rubyRecord(name, data)
	case set == "rustsec" && strings.HasPrefix(name, "rustsec/crates/"):
		return rustRecord(name, data)
	}
	return nil, nil
}

func cves(ids []string) []string {
	var out []string
	for _, id := range ids {
		if strings.HasPrefix(id, "CVE-") && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

func osvRecords(file, source string, o *osv) []*record {
	if o.Withdrawn != "" {
		return nil
	}
	ids := cves(append(slices.Clone(o.Aliases), o.ID))
	if source == "homebrew" || source == CarriedSet {
		ids = cves(append(ids, o.Upstream...))
	}
	if source == CarriedSet && len(ids) == 0 {
		if ids = cves(o.Related); len(ids) == 0 {
			return nil // a bug fix
		}
	}
	if len(ids) == 0 {
		ids = []string{o.ID}
	}
	var out []*record
	for _, a := range o.Affected {
		less := orders[a.Package.Ecosystem]
		if source == CarriedSet {
			family, _, _ := strings.Cut(a.Package.Ecosystem, ":")
			less = orders[family]
		}
		if less == nil {
			continue
		}
		r := &record{file: file, source: source, ecosystem: a.Package.Ecosystem, name: normalName(a.Package.Ecosystem,
			a.Package.Name), ids: ids}
		var in, inOpen []func(string) bool
		for _, rg := range a.Ranges {
			if rg.Type == "GIT" {
				continue
			}
			held, open, bounds := osvInterval(less, rg.Events)
			r.bounds = append(r.bounds, bounds...)
			in, inOpen = append(in, held), append(inOpen, open)
		}
		unreviewed := o.DatabaseSpecific.ReviewStatus == "UNREVIEWED"
		r.unconfirmed = func(v string) bool {
			held := false // otherwise only its list names the version
			for i := range in {
				if in[i](v) && !inOpen[i](v) {
					return false
				}
				held = held || in[i](v)
			}
			return held && unreviewed
		}
		versions := a.Versions
		r.held = func(v string) bool {
			return slices.ContainsFunc(in, func(f func(string) bool) bool { return f(v) }) ||
				slices.ContainsFunc(versions, func(w string) bool { c, ok := less(v, w); return ok && c == 0 })
		}
		if len(a.Ranges) == 0 {
			r.bounds = versions
		}
		out = append(out, r)
	}
	return out
}

// osvInterval applies the events in the order of their versions, as OSV specifies: the last event
// at or before a version decides. open reports whether a version is in an interval without an end.
func osvInterval(less order, events []map[string]string) (held, open func(string) bool, bounds []string) {
	type event struct{ kind, version string }
	var all []event
	for _, e := range events {
		for kind, version := range e {
			all = append(all, event{kind, version})
			bounds = append(bounds, version)
		}
	}
	sign := func(a, b string) (int, bool) {
		switch {
		case a == b:
			return 0, true
		case a == "0":
			return -1, true
		case b == "0":
			return 1, true
		}
		return less(a, b)
	}
	slices.SortStableFunc(all, func(a, b event) int { c, _ := sign(a.version, b.version); return c })
	for i := 1; i+1 < len(all); i++ { // an interval ends before the next one begins at the same version
		c, ok := sign(all[i].version, all[i+1].version)
		if ok && c == 0 && all[i-1].kind == "introduced" && all[i].kind == "introduced" {
			all[i], all[i+1] = all[i+1], all[i]
		}
	}
	// last returns the index of the event that decides: -1 for none, which is outside.
	last := func(v string) int {
		if _, ok := less(v, v); !ok {
			return -1
		}
		at := -1
		for i, e := range all {
			c, ok := sign(v, e.version)
			if !ok {
				return -1 // the record's text is not a version
			}
			if c > 0 || c == 0 && e.kind != "last_affected" {
				at = i
			}
		}
		return at
	}
	held = func(v string) bool { at := last(v); return at >= 0 && all[at].kind == "introduced" }
	open = func(v string) bool { return held(v) && last(v) == len(all)-1 }
	return held, open, slices.DeleteFunc(bounds, func(b string) bool { return b == "0" })
}

// normalName returns the name for comparing records and packages.
func normalName(ecosystem, name string) string {
	switch ecosystem {
	case "PyPI":
		return strings.Join(strings.FieldsFunc(strings.ToLower(name),
			func(r rune) bool { return strings.ContainsRune("-_.", r) }), "-")
	case "Homebrew", "SwiftURL":
		return strings.ToLower(name)
	}
	return name
}

// reviewed is for sources whose records were reviewed.
func reviewed(string) bool { return false }

func rubyRecord(file string, data []byte) ([]*record, error) {
	var r struct {
		Gem        string
		Engine     string
		CVE        string
		GHSA       string
		OSVDB      string
		Platform   string
		Patched    []string `yaml:"patched_versions"`
		Unaffected []string `yaml:"unaffected_versions"`
	}
	if err := yaml.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	id := strings.TrimSuffix(path.Base(file), ".yml")
	if r.CVE != "" {
		id = "CVE-" + r.CVE
	}
	rec := &record{
		file: file, source: "rubysec", ecosystem: "RubyGems", name: r.Gem, ids: []string{id},
		unconfirmed: reviewed,
	}
	if r.Gem == "" {
		rec.ecosystem, rec.name = "Rubies", r.Engine
	}
	var sound [][]gemRequirement
	for _, q := range append(slices.Clone(r.Patched), r.Unaffected...) {
		all, err := parseGemRequirements(q)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		sound = append(sound, all)
		for _, one := range all {
			rec.bounds = append(rec.bounds, one.version)
		}
	}
	rec.held = func(v string) bool {
		if _, ok := compareGem(v, v); !ok || r.Platform == "jruby" { // gems for it are other packages
			return false
		}
		return !slices.ContainsFunc(sound, func(all []gemRequirement) bool {
			return !slices.ContainsFunc(all, func(q gemRequirement) bool { return !q.holds(v) })
		})
	}
	return []*record{rec}, nil
}

type gemRequirement struct{ op, version string }

func parseGemRequirements(s string) ([]gemRequirement, error) {
	var out []gemRequirement
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		version := strings.TrimSpace(strings.TrimLeft(part, "<>=!~"))
		q := gemRequirement{
			op:      strings.TrimSpace(part[:len(part)-len(strings.TrimLeft(part, "<>=!~"))]),
			version: version,
		}
		if q.op == "" {
			q.op = "="
		}
		if _, ok := compareGem(version, version); !ok {
			return nil, fmt.Errorf("no requirement: %q", part)
		}
		out = append(out, q)
	}
	return out, nil
}

func (q gemRequirement) holds(v string) bool {
	c, _ := compareGem(v, q.version)
	switch q.op {
	case "=":
		return c == 0
	case "!=":
		return c != 0
	case ">":
		return c > 0
	case ">=":
		return c >= 0
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	}
	// ~>: at least that, and its release before the bumped one
	end, _ := compareGem(gemRelease(v), gemBump(q.version))
	return c >= 0 && end < 0
}

// gemRelease returns a version without its pre-release parts.
func gemRelease(v string) string {
	all := gemSegment.FindAllString(strings.ReplaceAll(v, "-", ".pre."), -1)
	if i := slices.IndexFunc(all, func(p string) bool { return !isNumber(p) }); i >= 0 {
		all = all[:i]
	}
	return strings.Join(all, ".")
}

// gemBump drops the last number of a version and adds one to the number before.
func gemBump(v string) string {
	all := strings.Split(gemRelease(v), ".")
	if len(all) > 1 {
		all = all[:len(all)-1]
	}
	all[len(all)-1] = plusOne(all[len(all)-1])
	return strings.Join(all, ".")
}

// plusOne adds one to a decimal number.
func plusOne(s string) string {
	d := []byte(s)
	for i := len(d) - 1; i >= 0; i-- {
		if d[i] != '9' {
			d[i]++
			return string(d)
		}
		d[i] = '0'
	}
	return "1" + string(d)
}
