package match

import (
	"cmp"
	"context"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/cpe"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// DB is the part of a vulnerability database that a match uses, safe for concurrent use.
type DB interface {
	// Advisories returns the records of all sources about a package.
	Advisories(eco vulndb.Ecosystem, name string) ([]vulndb.Advisory, error)
	// HasEcosystem reports whether any record is about packages of an ecosystem, which may be a release
	// of a distribution.
	HasEcosystem(eco vulndb.Ecosystem) (bool, error)
	// EachApplicability iterates over the configurations that name a product as vulnerable; those
	// of one CVE follow each other.
	EachApplicability(vendor, product string) iter.Seq2[vulndb.Applicability, error]
	// ProductVendors returns the vendors that have a product of a name, sorted.
	ProductVendors(product string) ([]vulndb.ProductVendor, error)
	// HasApplicabilities reports whether it has any configuration.
	HasApplicabilities() bool
	// Vulnerability returns the record of an ID, and false when there is none.
	Vulnerability(id string) (vulndb.Vulnerability, bool, error)
}

// Options configure a match.
type Options struct {
	Rules Rules
	// Products names a package as NVD does, and is called concurrently; nil is cpe.Products, with those that
	// the database has under the name of a formula, a cask or a pod.
	Products func(catalog.Package) []cpe.Product
	// Owners are further packages of operating systems, to which some of those that are matched belong.
	Owners        []catalog.Package
	OnWorkerStart func() // called by each goroutine before it works; may be nil
}

var _ DB = (*vulndb.DB)(nil)

// Match finds the vulnerabilities of packages. It stops with an error when the database cannot be
// read or ctx ends.
func Match(ctx context.Context, db DB, packages []catalog.Package, o Options) (*Result, error) {
	first, err := newMatcher(db, packages, o)
	if err != nil {
		return nil, err
	}
	work := &groupQueue{groups: groupByName(packages)}
	if err := first.findMissing(work.groups); err != nil {
		return nil, err
	}
	matchers := []*matcher{first}
	for range min(runtime.GOMAXPROCS(0), maxMatchers, len(work.groups)/chunkGroups+1) - 1 {
		matchers = append(matchers, first.clone())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, j := range matchers {
		wg.Go(func() {
			if o.OnWorkerStart != nil {
				o.OnWorkerStart()
			}
			if err := j.run(ctx, work); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	out := Result{Packages: len(packages)}
	var found []*Finding
	for _, j := range matchers {
		out.addCounts(&j.result)
		found = append(found, j.findings...)
	}
	out.setFindings(found)
	return &out, nil
}

const (
	maxMatchers = 4  // concurrent matchers; reading the database is most of the time
	chunkGroups = 32 // groups that a matcher takes at a time: neighbors are in one block
)

// groupQueue is the queue of groups, safe for concurrent use.
type groupQueue struct {
	groups      [][]*catalog.Package
	takenChunks atomic.Int64 // chunks
}

// next returns the next groups, none when all were taken.
func (w *groupQueue) next() [][]*catalog.Package {
	from := min(int(w.takenChunks.Add(1)-1)*chunkGroups, len(w.groups))
	return w.groups[from:min(from+chunkGroups, len(w.groups))]
}

// groupByName groups packages by kind and name, so that each name is read once from the database, in
// its storage order. The name is that of the advisories.
func groupByName(packages []catalog.Package) [][]*catalog.Package {
	all := make([]*catalog.Package, len(packages))
	for i := range packages {
		all[i] = &packages[i]
	}
	slices.SortFunc(all, func(a, b *catalog.Package) int {
		if c := compareSubjects(a, b); c != 0 {
			return c
		}
		if c := cmp.Compare(a.Version, b.Version); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Arch, b.Arch), cmp.Compare(a.Owner, b.Owner))
	})
	var out [][]*catalog.Package
	for len(all) > 0 {
		n := 1
		for n < len(all) && compareSubjects(all[n], all[0]) == 0 {
			n++
		}
		out = append(out, all[:n])
		all = all[n:]
	}
	return out
}

// compareSubjects compares what decides which advisories are about packages.
func compareSubjects(a, b *catalog.Package) int {
	if c := cmp.Compare(a.Kind, b.Kind); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Distribution, b.Distribution); c != 0 {
		return c
	}
	if c := cmp.Compare(subjectName(a), subjectName(b)); c != 0 || a.Source == "" && b.Source == "" {
		return c
	}
	if c := cmp.Compare(a.Source, b.Source); c != 0 || a.Kind == catalog.RPM {
		return c
	}
	return cmp.Compare(a.SourceVersion, b.SourceVersion) // those built for Ubuntu Pro have other advisories
}

// subjectName returns the name that the first advisories about a package have.
func subjectName(p *catalog.Package) string {
	if p.Source == "" || p.Kind == catalog.RPM {
		return p.Name
	}
	return p.Source
}
