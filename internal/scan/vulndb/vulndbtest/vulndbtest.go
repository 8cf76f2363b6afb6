// Package vulndbtest creates small databases for tests: from records, or from feeds in their
// published form.
//
// It is not part of any program, and fetches nothing.
//
// Invariant: its databases are written by the real writer and read by the real reader.
package vulndbtest

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/build"
	"github.com/buildyard/buildyard/internal/scan/vulndb/feed"
)

// Built is the date of the databases.
var Built = time.Date(2026, 8, 21, 12, 0, 0, 0, time.UTC)

// Content is the content of a database. The order does not matter.
type Content struct {
	Advisories      []vulndb.Advisory
	Vulnerabilities []vulndb.Vulnerability
	// Applicabilities are stored under each product that they name as vulnerable.
	Applicabilities []vulndb.Applicability
}

// Open writes a database of records and opens it until the test ends.
func Open(t testing.TB, c Content) *vulndb.DB {
	t.Helper()
	return open(t, Write(t, c))
}

// Write writes a database of records and returns its path.
func Write(t testing.TB, c Content) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vuln.db")
	f, err := os.Create(path)
	check(t, err)
	defer f.Close()
	w, err := vulndb.NewWriter(f, Built)
	check(t, err)
	list := slices.Clone(c.Vulnerabilities)
	slices.SortFunc(list, func(a, b vulndb.Vulnerability) int { return strings.Compare(a.ID, b.ID) })
	for _, v := range list {
		check(t, w.Vulnerability(v))
	}
	for _, k := range byProduct(c.Applicabilities) {
		check(t, w.Applicability(k.key, k.a))
	}
	advisories := slices.Clone(c.Advisories)
	slices.SortFunc(advisories, func(a, b vulndb.Advisory) int {
		return bytes.Compare(vulndb.AdvisoryKey(a), vulndb.AdvisoryKey(b))
	})
	for _, a := range advisories {
		check(t, w.Advisory(a))
	}
	check(t, w.Close([]vulndb.SourceInfo{{Name: "test", Date: Built, Records: len(advisories)}}))
	return path
}

// FromFeeds builds a database from files whose names are their paths and opens it.
func FromFeeds(t testing.TB, files map[string]string) (*vulndb.DB, *build.Report) {
	t.Helper()
	from := t.TempDir()
	for name, text := range files {
		p := filepath.Join(from, filepath.FromSlash(name))
		check(t, os.MkdirAll(filepath.Dir(p), 0o755))
		check(t, os.WriteFile(p, []byte(text), 0o600))
	}
	target := filepath.Join(t.TempDir(), "vuln.db")
	report, err := build.Build(t.Context(),
		build.Options{Inputs: []string{from}, Target: target, MaxMemory: 4 << 20, Now: Built})
	check(t, err)
	return open(t, target), report
}

func open(t testing.TB, path string) *vulndb.DB {
	t.Helper()
	db, err := vulndb.Open(path)
	check(t, err)
	t.Cleanup(func() { check(t, db.Close()) })
	return db
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// entry is an applicability under one of its products.
type entry struct {
	key vulndb.ApplicabilityKey
	a   vulndb.Applicability
}

// byProduct returns the applicabilities under each of their products, in order.
func byProduct(list []vulndb.Applicability) []entry {
	var out []entry
	for i, a := range list {
		seen := map[vulndb.ApplicabilityKey]bool{}
		for _, n := range a.Nodes {
			for _, c := range n.Criteria {
				_, vendor, name, ok := feed.CPEProduct(c.CPE)
				k := vulndb.ApplicabilityKey{
					Vendor: vulndb.ProductKey(vendor), Product: vulndb.ProductKey(name),
					Number: uint32(i),
				}
				if ok && c.Vulnerable && !seen[k] {
					seen[k] = true
					out = append(out, entry{k, a})
				}
			}
		}
	}
	slices.SortFunc(out, func(x, y entry) int {
		return cmp.Or(strings.Compare(x.key.Vendor+"\x00"+x.key.Product, y.key.Vendor+"\x00"+y.key.Product),
			strings.Compare(x.a.ID, y.a.ID), cmp.Compare(x.key.Number, y.key.Number))
	})
	return out
}
