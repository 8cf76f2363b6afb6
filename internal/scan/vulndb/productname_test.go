package vulndb

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestProductVendors(t *testing.T) {
	file := &memory{}
	w, err := NewWriter(file, time.Now())
	check(t, err)
	for _, n := range []struct {
		product string
		v       ProductVendor
	}{
		{"caddy", ProductVendor{Vendor: "CaddyServer", OwnRepository: true, Languages: []string{"go", "cobol"}}},
		{"tar", ProductVendor{Vendor: "gnu"}},
		{"tar", ProductVendor{Vendor: "tar_project", Languages: []string{"node.js", "rust"}}},
		{`tar\+`, ProductVendor{Vendor: "x"}},
	} {
		check(t, w.ProductName(n.product, n.v))
	}
	if err := w.ProductName("a", ProductVendor{}); !errors.Is(err, errNotSorted) {
		t.Errorf("a after tar: %v", err)
	}
	if err := w.ProductName("z\x00", ProductVendor{}); !errors.Is(err, ErrRecordLimit) {
		t.Errorf("a zero byte: %v", err)
	}
	check(t, w.Close(nil))
	db := open(t, file.b)
	check(t, db.Verify(context.Background()))
	for product, want := range map[string][]ProductVendor{
		"Caddy": {{Vendor: "caddyserver", OwnRepository: true, Languages: []string{"go"}}},
		"tar":   {{Vendor: "gnu"}, {Vendor: "tar_project", Languages: []string{"node.js", "rust"}}},
		"ta":    nil,
	} {
		got, err := db.ProductVendors(product)
		check(t, err)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", product, d)
		}
	}
	if db.HasApplicabilities() {
		t.Error("it has no configuration")
	}
}

// A name with very many vendors has a bounded answer, and one of an earlier program none.
func TestProductVendorsAreBounded(t *testing.T) {
	file := &memory{}
	w, err := NewWriter(file, time.Now())
	check(t, err)
	for i := range maxProductVendors + 100 {
		check(t, w.ProductName("firmware", ProductVendor{Vendor: fmt.Sprintf("v%04d", i)}))
	}
	check(t, w.Close(nil))
	db := open(t, file.b)
	if got, err := db.ProductVendors("firmware"); err != nil || len(got) != maxProductVendors {
		t.Errorf("%d vendors, %v", len(got), err)
	}
	db.trees[productNameSection] = &tree{}
	if got, err := db.ProductVendors("firmware"); err != nil || got != nil {
		t.Errorf("without a section: %v, %v", got, err)
	}
}
