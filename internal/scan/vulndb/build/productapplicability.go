package build

import (
	"slices"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/feed"
)

// product is a vendor's product, in the form of keys.
type product struct{ vendor, name string }

// productApplicability is an applicability whose products were read from its CPEs once.
type productApplicability struct {
	vulndb.Applicability
	products           [][]product // of each criterion of each node
	vulnerableProducts []product   // those named as vulnerable, each once
	nodeByProduct      map[product]int
}

const multipleNodes = -1 // several nodes name the product

// newProductApplicability returns the products that a configuration names as vulnerable. Hardware is left out:
// no package is hardware.
func newProductApplicability(a vulndb.Applicability) *productApplicability {
	n := &productApplicability{Applicability: a, nodeByProduct: map[product]int{}}
	vulnerable := map[product]bool{}
	for i, node := range a.Nodes {
		list := make([]product, len(node.Criteria))
		for j, c := range node.Criteria {
			part, vendor, name, ok := feed.CPEProduct(c.CPE)
			if !ok {
				continue
			}
			p := product{vulndb.ProductKey(vendor), vulndb.ProductKey(name)}
			list[j] = p
			if at, seen := n.nodeByProduct[p]; seen && at != i {
				n.nodeByProduct[p] = multipleNodes
			} else if !seen {
				n.nodeByProduct[p] = i
			}
			if c.Vulnerable && part != "h" && !vulnerable[p] {
				vulnerable[p] = true
				n.vulnerableProducts = append(n.vulnerableProducts, p)
			}
		}
		n.products = append(n.products, list)
	}
	return n
}

// reducedTo returns the configuration and reduces the one node that names a product to the criteria
// about that product. When one criterion is enough in that node, the others do not affect the
// product; other nodes stay whole, as other products may match them.
func (n *productApplicability) reducedTo(p product) vulndb.Applicability {
	at := n.nodeByProduct[p]
	if at == multipleNodes || n.Nodes[at].All || n.Nodes[at].Negate {
		return n.Applicability
	}
	a := n.Applicability
	a.Nodes = slices.Clone(a.Nodes)
	a.Nodes[at].Criteria = nil
	for j, c := range n.Nodes[at].Criteria {
		if n.products[at][j] == p {
			a.Nodes[at].Criteria = append(a.Nodes[at].Criteria, c)
		}
	}
	return a
}
