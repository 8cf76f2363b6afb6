package match

import (
	"slices"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// advisoryMatch is the result of comparing a version with an advisory.
type advisoryMatch struct {
	affected      bool
	hasEnd        bool // a range that has an end contains it, or a list names it
	constraint    string
	fixedVersions []string
	err           error // of a failed comparison; another range may still contain it
}

// compareAdvisory compares a version with the ranges and the list of an advisory.
func (j *matcher) compareAdvisory(s packageVersion, a *vulndb.Advisory) advisoryMatch {
	var v advisoryMatch
	j.trace.addAdvisory(a)
	if s.err != nil {
		v.err = s.err
		j.trace.add("Its ranges cannot be asked: %v.", s.err)
	}
	for _, r := range a.Ranges {
		if s.err != nil {
			break
		}
		holds, err := s.containedIn(r)
		j.trace.addRange(s.raw, r, holds, err)
		if err != nil {
			v.err = err
		}
		if !holds {
			continue
		}
		if !v.affected {
			v.affected, v.constraint = true, formatRange(r)
		}
		v.hasEnd = v.hasEnd || r.Fixed != "" || r.LastAffected != ""
		if r.Fixed != "" {
			v.fixedVersions = append(v.fixedVersions, r.Fixed)
		}
	}
	if !v.affected && s.isListed(a.Versions) {
		j.trace.add("%s is in its list of affected versions.", s.raw)
		v.affected, v.hasEnd = true, true
		v.constraint, v.fixedVersions = "= "+s.raw, s.fixesAfter(a.Ranges)
	}
	if v.affected {
		v.err = nil
	}
	v.fixedVersions = s.sortVersions(v.fixedVersions)
	return v
}

// fixesAfter returns the fixed versions above the version.
func (s packageVersion) fixesAfter(ranges []vulndb.Range) []string {
	var out []string
	if s.err != nil {
		return nil
	}
	for _, r := range ranges {
		if c, _ := s.compare(r.Fixed); c < 0 { // 0 where it cannot be compared
			out = append(out, r.Fixed)
		}
	}
	return out
}

// sortVersions sorts comparable versions, the lowest first, and removes duplicates.
func (s packageVersion) sortVersions(versions []string) []string {
	slices.SortStableFunc(versions, func(a, b string) int {
		n, _ := newPackageVersion(s.scheme, a).compare(b)
		return n
	})
	return slices.Compact(versions)
}

// findingCollector collects the findings of one package.
type findingCollector struct {
	matcher         *matcher
	pkg             *catalog.Package
	ids             []string
	distroPatched   string            // of its findings
	ownerNames      []map[string]bool // as of namesAbout, of its owner; nil until first used
	evaluated       bool              // at least one criterion was compared
	notEvaluatedErr error             // of the last one that could not be
}

func (f *findingCollector) hasID(id string) bool { return slices.Contains(f.ids, id) }

// add completes a finding and applies the rules. A rejected ID is not a vulnerability: an
// ecosystem's record is then reported under its own ID, NVD's not at all.
func (f *findingCollector) add(id string, found *Finding) error {
	v, err := f.matcher.vulnerability(id)
	if err != nil {
		return err
	}
	if v.Rejected {
		f.matcher.trace.add("%s was rejected: it is not a vulnerability.", id)
		if found.Advisory == id {
			return nil
		}
		if v, err = f.matcher.vulnerability(found.Advisory); err != nil {
			return err
		}
	}
	if f.hasID(v.ID) {
		return nil
	}
	f.ids = append(f.ids, v.ID)
	found.Vulnerability, found.Package = *v, *f.pkg
	found.Vulnerability.Related = relatedNames(v, found.Advisory)
	found.Version, found.Type, found.DistroPatched = f.pkg.Version, MatchTypeSemantic, f.distroPatched
	if decided, err := f.ownerDecides(id, found); decided || err != nil {
		return err
	}
	f.matcher.addFinding(found)
	return nil
}

// vulnerability looks an id up, once.
func (j *matcher) vulnerability(id string) (*vulndb.Vulnerability, error) {
	if v := j.vulnerabilities[id]; v != nil {
		return v, nil
	}
	v, _, err := j.db.Vulnerability(id)
	if err != nil {
		return nil, err
	}
	v.ID = id
	if v.Score.Severity == "" {
		v.Score.Severity = vulndb.Unknown
	}
	j.vulnerabilities[id] = &v
	return &v, nil
}

// relatedNames returns the other names of a vulnerability, with the advisory that matched.
func relatedNames(v *vulndb.Vulnerability, advisory string) []string {
	if advisory == v.ID || slices.Contains(v.Related, advisory) {
		return v.Related
	}
	out := append(slices.Clone(v.Related), advisory)
	slices.Sort(out)
	return out
}
