package match

import (
	"cmp"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// advisoryGroup is one vulnerability of one package, with its advisories.
type advisoryGroup struct {
	id        string
	deciding  []*vulndb.Advisory // of the source that comes first
	overruled []*vulndb.Advisory // of others
}

// groupAdvisories groups the advisories of a package by vulnerability. Records of several sources are about
// the same one when they name the same CVE, or, where one has none, when one names the other. That
// is not transitive: lists of other names are written by hand, and one wrong entry would merge two
// vulnerabilities.
func (e ecosystem) groupAdvisories(advisories []vulndb.Advisory) []advisoryGroup {
	byID := map[string]*advisoryGroup{}
	var ids []string
	for i := range advisories {
		a := &advisories[i]
		for _, id := range e.reportedIDs(a, advisories) {
			t := byID[id]
			if t == nil {
				t = &advisoryGroup{id: id}
				byID[id] = t
				ids = append(ids, id)
			}
			e.addToGroup(t, a)
		}
	}
	slices.Sort(ids)
	out := make([]advisoryGroup, 0, len(ids))
	for _, id := range ids {
		out = append(out, *byID[id])
	}
	return out
}

// addToGroup adds an advisory to those that decide, or to the others.
func (e ecosystem) addToGroup(t *advisoryGroup, a *vulndb.Advisory) {
	c := -1
	if len(t.deciding) > 0 {
		c = cmp.Compare(e.sourceRank(a.Source), e.sourceRank(t.deciding[0].Source))
	}
	switch {
	case c > 0:
		t.overruled = append(t.overruled, a)
	case c == 0:
		t.deciding = append(t.deciding, a)
	default:
		t.overruled = append(t.overruled, t.deciding...)
		t.deciding = []*vulndb.Advisory{a}
	}
}

// reportedIDs returns the IDs under which an advisory is reported: its IgnoredCVEs, else those of a record of
// the same vulnerability, else the ID of the one that decides.
func (e ecosystem) reportedIDs(a *vulndb.Advisory, all []vulndb.Advisory) []string {
	if len(a.CVEs) > 0 {
		return a.CVEs
	}
	best := a
	var cves []string
	for i := range all {
		b := &all[i]
		if !slices.Contains(a.Related, b.ID) && !slices.Contains(b.Related, a.ID) {
			continue
		}
		cves = append(cves, b.CVEs...)
		if c := cmp.Or(cmp.Compare(e.sourceRank(b.Source), e.sourceRank(best.Source)),
			cmp.Compare(b.ID, best.ID)); c < 0 {
			best = b
		}
	}
	if len(cves) > 0 {
		slices.Sort(cves)
		return slices.Compact(cves)
	}
	return []string{best.ID}
}
