package match

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Explanation is why a package has a vulnerability, or does not.
type Explanation struct {
	ID      string
	Package catalog.Package
	Steps   []string // sentences, in the order in which it was decided
	Finding *Finding // nil when it is not reported

	// KnownID reports whether the database or an advisory about the package has the ID;
	// KnownPackage whether any record is about the package.
	KnownID, KnownPackage bool
}

// trace records the decisions on one vulnerability. A nil trace records nothing.
type trace struct {
	ids       []string // of the vulnerability
	steps     []string
	anyRecord bool // a record was about the package
	knownID   bool // one of these records has the ID
}

// ExplainRequest selects one vulnerability of one package.
type ExplainRequest struct {
	ID            string // a CVE, or the ID of an advisory
	Package       catalog.Package
	OtherPackages []catalog.Package // other packages found: some configurations require two products
}

// Explain matches one package against one vulnerability as Match does, and records every step.
func Explain(ctx context.Context, db DB, q ExplainRequest, o Options) (*Explanation, error) {
	id, p := q.ID, q.Package
	s := &trace{ids: []string{id}}
	j, err := newMatcher(&tracingDB{db, s}, q.OtherPackages, o)
	if err != nil {
		return nil, err
	}
	j.trace = s
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := j.matchGroup([]*catalog.Package{&p}); err != nil {
		return nil, err
	}
	_, known, err := db.Vulnerability(id)
	if err != nil {
		return nil, err
	}
	out := &Explanation{ID: id, Package: p, KnownID: known || s.knownID, KnownPackage: s.anyRecord}
	for _, f := range j.findings {
		if slices.Contains(s.ids, f.Vulnerability.ID) || slices.Contains(s.ids, f.Advisory) {
			out.Finding = f
		}
	}
	if len(s.steps) == 0 {
		s.add("Nothing in the database says that %s is about %s %s.", id, p.Kind, p.Name)
	}
	if out.Finding != nil {
		s.add("So %s %s has %s.", p.Name, p.Version, out.Finding.Vulnerability.ID)
	} else {
		s.add("So %s is not reported for %s %s.", id, p.Name, p.Version)
	}
	out.Steps = s.steps
	return out, nil
}

// selectGroups returns those about the vulnerability, and records its other names. It is called once all
// are known, since a record may have its CVE from another.
func (s *trace) selectGroups(all []advisoryGroup) []advisoryGroup {
	if s == nil {
		return all
	}
	id := s.ids[0]
	var out []advisoryGroup
	for _, t := range all {
		records := slices.Concat(t.deciding, t.overruled)
		named := slices.ContainsFunc(records,
			func(a *vulndb.Advisory) bool { return a.ID == id || slices.Contains(a.Related, id) })
		if t.id != id && !named {
			continue
		}
		out = append(out, t)
		if named {
			s.ids = append(s.ids, t.id)
			for _, a := range records {
				s.ids = append(s.ids, a.ID)
			}
		}
	}
	s.anyRecord, s.knownID = s.anyRecord || len(all) > 0, s.knownID || len(out) > 0
	return out
}

// tracingDB is a database that traces its queries.
type tracingDB struct {
	DB
	trace *trace
}

// EachApplicability records which configurations exist.
func (h *tracingDB) EachApplicability(vendor, product string) iter.Seq2[vulndb.Applicability, error] {
	return func(yield func(vulndb.Applicability, error) bool) {
		for a, err := range h.DB.EachApplicability(vendor, product) {
			if err == nil {
				h.trace.anyRecord, h.trace.knownID = true, h.trace.knownID || a.ID == h.trace.ids[0]
			}
			if !yield(a, err) {
				return
			}
		}
	}
}

func (s *trace) add(format string, args ...any) {
	if s != nil {
		s.steps = append(s.steps, fmt.Sprintf(format, args...))
	}
}

// wants reports whether a step on an id is wanted.
func (s *trace) wants(id string) bool { return s == nil || slices.Contains(s.ids, id) }

func (s *trace) addAdvisory(a *vulndb.Advisory) {
	if s == nil {
		return
	}
	s.add("%s (%s) is about %s %s: %s, %s.", a.ID, a.Source, a.Ecosystem, a.Name, countNoun(len(a.Ranges), "range"),
		countNoun(len(a.Versions), "single version"))
	if a.Unconfirmed {
		s.add("Not reviewed: a match by an open-ended range is marked and fails no build.")
	}
}

// countNoun formats a count with a noun: "1 range", "2 ranges".
func countNoun(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

func (s *trace) addRange(version string, r vulndb.Range, holds bool, err error) {
	switch {
	case s == nil:
	case err != nil:
		s.add("%s cannot be compared with %s: %v.", version, formatRange(r), err)
	case holds:
		s.add("%s is within %s.", version, formatRange(r))
	default:
		s.add("%s is outside of %s.", version, formatRange(r))
	}
}

// traceConfiguration traces which criteria of a configuration of NVD apply to an item.
func (j *matcher) traceConfiguration(it *productQuery, a *vulndb.Applicability, c *configurationResult) {
	if j.trace == nil {
		return
	}
	for _, n := range a.Nodes {
		for _, k := range n.Criteria {
			parts, ok := parseCPE(k.CPE)
			if !ok {
				continue
			}
			var none configurationResult
			holds := j.criterionHolds(it, &parts, &k, &none)
			word := map[bool]string{true: "holds", false: "does not hold"}[holds]
			j.trace.add("Criterion %s (%s) %s for version %s.", k.CPE, criterionText(&parts, &k), word, it.raw)
			if none.err != nil {
				j.trace.add("It cannot be compared: %v.", none.err)
			}
		}
	}
	if c.applies {
		j.trace.add("All parts of the configuration of %s hold.", a.ID)
	} else {
		j.trace.add("The configuration of %s does not hold as a whole.", a.ID)
	}
}
