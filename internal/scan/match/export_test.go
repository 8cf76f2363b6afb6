package match

import (
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// NamesProduct reports whether a CPE is of a vendor and product, for a database of tests.
func NamesProduct(s, vendor, product string) bool {
	c, ok := parseCPE(s)
	return ok && strings.EqualFold(c.vendor, vendor) && strings.EqualFold(c.product, product)
}

// EcosystemsOf returns the ecosystems whose advisories are about a package.
func EcosystemsOf(p *catalog.Package) (out []string) {
	for _, q := range queriesOf(nil, p) {
		out = append(out, string(q.name))
	}
	return out
}
