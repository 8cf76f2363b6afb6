package match

import "strings"

// NamesProduct reports whether a CPE is of a vendor and product, for a database of tests.
func NamesProduct(s, vendor, product string) bool {
	c, ok := parseCPE(s)
	return ok && strings.EqualFold(c.vendor, vendor) && strings.EqualFold(c.product, product)
}
