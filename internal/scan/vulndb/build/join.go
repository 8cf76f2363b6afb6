package build

import (
	"bytes"
	"errors"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/feed"
	"github.com/buildyard/buildyard/internal/scan/vulndb/score"
)

const relatedMost = 200 // ids that one vulnerability is related to

// joined is a vulnerability as its facts come together, in the order of their bytes.
type joined struct {
	v              vulndb.Vulnerability
	rank           int
	configurations [][]byte // of the lowest rank, sorted
}

func newJoined(id string) *joined {
	return &joined{v: vulndb.Vulnerability{ID: id, Score: vulndb.Score{Severity: vulndb.Unknown}}, rank: 255}
}

func (j *joined) add(fact []byte) error {
	switch {
	case len(fact) > 0 && fact[0] == partFact:
		var part vulndb.Vulnerability
		if err := part.UnmarshalBinary(fact[1:]); err != nil {
			return err
		}
		j.part(part)
		return nil
	case len(fact) > 1 && fact[0] == configurationFact:
		rank := int(fact[1])
		if rank < j.rank {
			j.rank, j.configurations = rank, nil
		}
		if rank == j.rank {
			j.configurations = append(j.configurations, bytes.Clone(fact[2:]))
		}
		return nil
	default:
		return errors.New("an unknown fact")
	}
}

func (j *joined) part(p vulndb.Vulnerability) {
	if score.Better(p.Score, j.v.Score) {
		j.v.Score = p.Score
	}
	if j.v.URL == "" || p.URL != "" && p.URL < j.v.URL {
		j.v.URL = p.URL
	}
	j.v.Related = append(j.v.Related, p.Related...)
	if p.Exploited {
		since := p.ExploitedSince
		if j.v.ExploitedSince.IsZero() || !since.IsZero() && since.Before(j.v.ExploitedSince) {
			j.v.ExploitedSince = since
		}
		j.v.Exploited = true
	}
	j.v.EPSS = max(j.v.EPSS, p.EPSS)
	j.v.EPSSPercentile = max(j.v.EPSSPercentile, p.EPSSPercentile)
	j.v.Rejected = j.v.Rejected || p.Rejected
}

func (j *joined) result() vulndb.Vulnerability {
	slices.Sort(j.v.Related)
	j.v.Related = slices.Compact(j.v.Related)
	j.v.Related = j.v.Related[:min(len(j.v.Related), relatedMost)]
	return j.v
}

// product is a vendor's product, as keys have it.
type product struct{ vendor, name string }

// productsOf gives the products that a configuration names as vulnerable, each once.
// Hardware is left out: no package is any.
func productsOf(a vulndb.Applicability) []product {
	var list []product
	seen := map[product]bool{}
	for _, n := range a.Nodes {
		for _, c := range n.Criteria {
			part, p, ok := productOf(c)
			if ok && c.Vulnerable && part != "h" && !seen[p] {
				seen[p] = true
				list = append(list, p)
			}
		}
	}
	return list
}

func productOf(c vulndb.Criterion) (part string, p product, ok bool) {
	part, vendor, name, ok := feed.Product(c.CPE)
	return part, product{vulndb.ProductKey(vendor), vulndb.ProductKey(name)}, ok
}

// reduce leaves in the one node that names a product as vulnerable what is about that
// product. Whether it is affected depends on nothing else of that node, when one
// criterion is enough there; other nodes stay whole, as other things may meet them.
func reduce(a vulndb.Applicability, p product) vulndb.Applicability {
	at := -1
	for i, n := range a.Nodes {
		if !slices.ContainsFunc(n.Criteria, func(c vulndb.Criterion) bool { return names(c, p) }) {
			continue
		}
		if at >= 0 || n.All || n.Negate {
			return a
		}
		at = i
	}
	if at < 0 {
		return a
	}
	a.Nodes = slices.Clone(a.Nodes)
	a.Nodes[at].Criteria = slices.DeleteFunc(slices.Clone(a.Nodes[at].Criteria), func(c vulndb.Criterion) bool { return !names(c, p) })
	return a
}

func names(c vulndb.Criterion, p product) bool {
	_, q, ok := productOf(c)
	return ok && q == p
}
