package match

import (
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/cpe"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// productsOf returns the products that a package may be: those of the table of package cpe, and for a formula, a cask
// or a pod that is not in it those that the database has under its name.
func (j *matcher) productsOf(p *catalog.Package) ([]cpe.Product, error) {
	if j.options.Products != nil {
		return j.options.Products(*p), nil
	}
	products := cpe.Products(*p)
	if p.Kind != catalog.Brew && p.Kind != catalog.Pod && p.Kind != catalog.Runtime {
		return products, nil
	}
	if p.Kind != catalog.Runtime && !allCurated(products) && (cpe.IsCask(*p) || !cpe.NamesCask(p.Name)) {
		derived, err := j.derivedProducts(p)
		if err != nil {
			return nil, err
		}
		products = slices.DeleteFunc(products, func(known cpe.Product) bool {
			return slices.ContainsFunc(derived, func(d cpe.Product) bool {
				return known.Vendor == d.Vendor && known.Product == d.Product
			})
		})
		products = append(products, derived...)
	}
	for i := range products {
		if p.Kind == catalog.Pod || cpe.IsCask(*p) && !products[i].Curated {
			continue // an application rarely is the library of its name
		}
		if err := j.setLanguage(&products[i]); err != nil {
			return nil, err
		}
	}
	return products, nil
}

func allCurated(products []cpe.Product) bool {
	return len(products) == 0 ||
		!slices.ContainsFunc(products, func(p cpe.Product) bool { return !p.Curated })
}

// derivedProducts returns the products of the database that have a name of a package, and a vendor that makes it
// likely that they are the package:
//
//   - the vendor has the name of the product, or one begins with the other: jqlang:jq, caddyserver:caddy; those that
//     end with "js" or "php" make libraries for these languages;
//   - it is one of those that Homebrew has many formulae of, and fewer applications: apache:activemq, gnu:tar;
//   - the name of the package is that of the vendor and that of the product: gnu-tar, google-chrome;
//   - references of the product's vulnerabilities lead to its source, in a repository with the names of both:
//     nektos:act. Where this holds for several vendors none is right for sure, and none is taken. A repository with
//     "lib" before the name of the package may be of any library.
//
// Of names the first decides for which there is any.
func (j *matcher) derivedProducts(p *catalog.Package) ([]cpe.Product, error) {
	for i, name := range cpe.ProductNames(*p) {
		vendors, err := j.db.ProductVendors(name)
		if err != nil {
			return nil, err
		}
		var out []cpe.Product
		var own []string
		for _, v := range vendors {
			switch {
			case isNamedAs(v.Vendor, name) || cpe.IsPackagedVendor(v.Vendor) && !cpe.IsCask(*p):
				out = append(out, cpe.Product{Vendor: v.Vendor, Product: name})
			case v.OwnRepository && (i == 0 || !strings.HasPrefix(name, "lib")):
				own = append(own, v.Vendor)
			}
		}
		if len(own) == 1 {
			out = append(out, cpe.Product{Vendor: own[0], Product: name})
		}
		more, err := j.vendorAndProduct(name)
		if out = append(out, more...); len(out) > 0 || err != nil {
			return out, err
		}
	}
	return nil, nil
}

// setLanguage sets the language that a product is written in as its target software, where criteria name one: for
// Homebrew's packages that is the program in this language (go for caddyserver:caddy). Criteria about several
// languages are about libraries for them (google:protobuf). A library may have the name of another program, unless it
// is in Go or more than its name makes it this product.
func (j *matcher) setLanguage(p *cpe.Product) error {
	if p.TargetSW != "" {
		return nil
	}
	vendors, err := j.db.ProductVendors(p.Product)
	if err != nil {
		return err
	}
	for _, v := range vendors {
		if v.Vendor != p.Vendor || len(v.Languages) != 1 {
			continue
		}
		merelyNamed := strings.TrimSuffix(v.Vendor, "_project") == p.Product
		if p.Curated || v.OwnRepository || !merelyNamed || v.Languages[0] == "go" {
			p.TargetSW = v.Languages[0]
		}
	}
	return nil
}

// maxNameParts limits how often a name is split into a vendor and a product.
const maxNameParts = 4

// vendorAndProduct returns the products whose vendor and name are the parts of a name with a dash between them.
func (j *matcher) vendorAndProduct(name string) ([]cpe.Product, error) {
	var out []cpe.Product
	parts := strings.Split(name, "-")
	for n := 1; n < min(len(parts), maxNameParts); n++ {
		vendor, rest := strings.Join(parts[:n], "-"), strings.Join(parts[n:], "-")
		for _, product := range slices.Compact([]string{rest, strings.ReplaceAll(rest, "-", "_")}) {
			vendors, err := j.db.ProductVendors(product)
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(vendors, func(v vulndb.ProductVendor) bool { return v.Vendor == vendor }) {
				out = append(out, cpe.Product{Vendor: vendor, Product: product})
			}
		}
	}
	return out, nil
}

// minNameBytes is the length of the shortest name that says something when it is a part of another.
const minNameBytes = 4

// isNamedAs reports whether a vendor has the name of a product: "jq_project", "caddyserver" and "rocket.chat" have,
// of jq, caddy and rocket.chat.
func isNamedAs(vendor, product string) bool {
	v, p := lettersOf(strings.TrimSuffix(vendor, "_project")), lettersOf(product)
	if v == p+"js" || v == p+"php" {
		return false
	}
	return v != "" && (v == p || len(p) >= minNameBytes && strings.HasPrefix(v, p) ||
		len(v) >= minNameBytes && strings.HasPrefix(p, v))
}

// lettersOf returns the letters and digits of a name.
func lettersOf(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, name)
}
