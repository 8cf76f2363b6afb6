package match

import (
	"slices"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// verdict is the result of comparing a version with an advisory.
type verdict struct {
	affected   bool
	bounded    bool // a range that has an end contains it, or a list names it
	constraint string
	fixed      []string
	err        error // of a failed comparison; another range may still contain it
}

// verdict compares a version with the ranges and the list of an advisory.
func (j *matcher) verdict(s subject, a *vulndb.Advisory) verdict {
	var v verdict
	j.story.addAdvisory(a)
	if s.err != nil {
		v.err = s.err
		j.story.add("Its ranges cannot be asked: %v.", s.err)
	}
	for _, r := range a.Ranges {
		if s.err != nil {
			break
		}
		holds, err := s.within(r)
		j.story.addRange(s.text, r, holds, err)
		if err != nil {
			v.err = err
		}
		if !holds {
			continue
		}
		if !v.affected {
			v.affected, v.constraint = true, constraint(r)
		}
		v.bounded = v.bounded || r.Fixed != "" || r.LastAffected != ""
		if r.Fixed != "" {
			v.fixed = append(v.fixed, r.Fixed)
		}
	}
	if !v.affected && s.named(a.Versions) {
		j.story.add("%s is in its list of affected versions.", s.text)
		v.affected, v.bounded = true, true
		v.constraint, v.fixed = "= "+s.text, s.fixesAfter(a.Ranges)
	}
	if v.affected {
		v.err = nil
	}
	v.fixed = s.nearest(v.fixed)
	return v
}

// fixesAfter returns the fixed versions above the version.
func (s subject) fixesAfter(ranges []vulndb.Range) []string {
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

// nearest sorts comparable versions, the lowest first, and removes duplicates.
func (s subject) nearest(versions []string) []string {
	slices.SortStableFunc(versions, func(a, b string) int {
		n, _ := newSubject(s.scheme, a).compare(b)
		return n
	})
	return slices.Compact(versions)
}

// findings collects the findings of one package.
type findings struct {
	matcher      *matcher
	pkg          *catalog.Package
	ids          []string
	notEvaluated error
}

func (f *findings) has(id string) bool { return slices.Contains(f.ids, id) }

// add completes a finding and applies the rules. A rejected ID is not a vulnerability: an
// ecosystem's record is then reported under its own ID, NVD's not at all.
func (f *findings) add(id string, found *Finding) error {
	v, err := f.matcher.vulnerability(id)
	if err != nil {
		return err
	}
	if v.Rejected {
		f.matcher.story.add("%s was rejected: it is not a vulnerability.", id)
		if found.Advisory == id {
			return nil
		}
		if v, err = f.matcher.vulnerability(found.Advisory); err != nil {
			return err
		}
	}
	if f.has(v.ID) {
		return nil
	}
	f.ids = append(f.ids, v.ID)
	found.Vulnerability, found.Package = *v, *f.pkg
	found.Vulnerability.Related = related(v, found.Advisory)
	found.Version, found.Type = f.pkg.Version, Semantic
	f.matcher.keep(found)
	return nil
}

// vulnerability looks an id up, once.
func (j *matcher) vulnerability(id string) (*vulndb.Vulnerability, error) {
	if v := j.known[id]; v != nil {
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
	j.known[id] = &v
	return &v, nil
}

// related returns the other names of a vulnerability, with the advisory that matched.
func related(v *vulndb.Vulnerability, advisory string) []string {
	if advisory == v.ID || slices.Contains(v.Related, advisory) {
		return v.Related
	}
	out := append(slices.Clone(v.Related), advisory)
	slices.Sort(out)
	return out
}
