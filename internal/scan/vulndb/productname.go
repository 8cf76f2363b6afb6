package vulndb

import (
	"fmt"
	"slices"
	"strings"
)

// ProductVendor is a vendor of products of one name.
type ProductVendor struct {
	Vendor string // in the form of ProductKey
	// OwnRepository reports that a reference of one of its vulnerabilities leads to a source repository which has
	// the name of the product, and whose owner has that of the vendor or of the product.
	OwnRepository bool
	// Languages are those that criteria about the product name as its target software, sorted: the language that it is
	// written in, or several where it has libraries for these.
	Languages []string
}

// TargetLanguages are the languages that criteria may name as target software, as NVD spells them. The numbers of their
// bits in a file are their indexes.
var TargetLanguages = []string{"go", "maven", "node.js", "perl", "php", "python", "ruby", "rust"}

// maxProductVendors limits the vendors of one name in an answer. The name with the most in NVD, "firmware" and the
// like aside, has some hundred.
const maxProductVendors = 500

// An entry of the names of products has a byte of flags, and one of languages.
const (
	productNameBytes  = 2
	flagOwnRepository = 1
)

// ProductName adds the name of a product that is in an applicability; calls are in the order of product and vendor.
func (w *Writer) ProductName(product string, v ProductVendor) error {
	vendor, name := ProductKey(v.Vendor), ProductKey(product)
	if strings.Contains(vendor+name, "\x00") {
		return fmt.Errorf("%w: its key has a zero byte", ErrRecordLimit)
	}
	value := make([]byte, productNameBytes)
	if v.OwnRepository {
		value[0] |= flagOwnRepository
	}
	for _, l := range v.Languages {
		if bit := slices.Index(TargetLanguages, l); bit >= 0 {
			value[1] |= 1 << bit
		}
	}
	return w.addEntry(productNameSection, append(productNamePrefix(name), vendor...), value)
}

func productNamePrefix(product string) []byte { return append([]byte(ProductKey(product)), 0) }

// ProductVendors returns the vendors that have a product of a name, sorted, at most 500. Databases of earlier programs
// have no such names.
func (db *DB) ProductVendors(product string) ([]ProductVendor, error) {
	var out []ProductVendor
	prefix := productNamePrefix(product)
	err := db.trees[productNameSection].scan(prefix, func(key, value []byte) (bool, error) {
		if len(value) < productNameBytes {
			return false, fmt.Errorf("%w: a name of a product has %d bytes", ErrDamaged, len(value))
		}
		v := ProductVendor{Vendor: string(key[len(prefix):]), OwnRepository: value[0]&flagOwnRepository != 0}
		for bit, l := range TargetLanguages {
			if value[1]>>bit&1 != 0 {
				v.Languages = append(v.Languages, l)
			}
		}
		out = append(out, v)
		return len(out) < maxProductVendors, nil
	})
	return out, err
}
