package match_test

import (
	"iter"
	"slices"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// memory is a database of a few records.
type memory struct {
	advisories      []vulndb.Advisory
	applicabilities []vulndb.Applicability
	vulnerabilities []vulndb.Vulnerability
	vendors         []productVendor
	err             error
}

// productVendor is a name of a product with one of its vendors.
type productVendor struct {
	product string
	vulndb.ProductVendor
}

var _ match.DB = (*memory)(nil)

func (m *memory) Advisories(eco vulndb.Ecosystem, name string) ([]vulndb.Advisory, error) {
	var out []vulndb.Advisory
	for _, a := range m.advisories {
		if a.Ecosystem == eco && a.Name == name {
			out = append(out, a)
		}
	}
	return out, m.err
}

func (m *memory) HasEcosystem(eco vulndb.Ecosystem) (bool, error) {
	return slices.ContainsFunc(m.advisories, func(a vulndb.Advisory) bool { return a.Ecosystem == eco }), m.err
}

func (m *memory) HasApplicabilities() bool { return len(m.applicabilities) > 0 }

func (m *memory) ProductVendors(product string) ([]vulndb.ProductVendor, error) {
	var out []vulndb.ProductVendor
	for _, v := range m.vendors {
		if v.product == product {
			out = append(out, v.ProductVendor)
		}
	}
	return out, m.err
}

func (m *memory) EachApplicability(vendor, product string) iter.Seq2[vulndb.Applicability, error] {
	return func(yield func(vulndb.Applicability, error) bool) {
		for _, a := range m.applicabilities {
			names := slices.ContainsFunc(a.Nodes, func(n vulndb.Node) bool {
				return slices.ContainsFunc(n.Criteria, func(c vulndb.Criterion) bool {
					return c.Vulnerable && match.NamesProduct(c.CPE, vendor, product)
				})
			})
			if names && !yield(a, m.err) {
				return
			}
		}
	}
}

func (m *memory) Vulnerability(id string) (vulndb.Vulnerability, bool, error) {
	for _, v := range m.vulnerabilities {
		if v.ID == id {
			return v, true, m.err
		}
	}
	return vulndb.Vulnerability{}, false, m.err
}

// run matches packages and returns the result.
func run(t *testing.T, db match.DB, o match.Options, packages ...catalog.Package) *match.Result {
	t.Helper()
	r, err := match.Match(t.Context(), db, packages, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// found formats findings as "name version id constraint".
func found(r *match.Result) []string {
	var out []string
	for _, f := range r.Findings {
		out = append(out, f.Package.Name+" "+f.Version+" "+f.Vulnerability.ID+" "+f.Constraint)
	}
	return out
}

func expect[T comparable](t *testing.T, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
