package match

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/cpe"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// matcher has the state of one match. One goroutine uses it.
type matcher struct {
	db       DB
	packages []catalog.Package
	options  Options
	known    map[string]*vulndb.Vulnerability // looked up before, by ID
	items    map[string][]productQuery        // by "vendor:product"; nil until first used
	ignored  map[string]bool                  // CPEs of packages that are left out
	story    *trace                           // of Explain; nil otherwise
	found    []*Finding
	result   Result // without its findings
}

func newMatcher(db DB, packages []catalog.Package, o Options) (*matcher, error) {
	if o.Products == nil {
		o.Products = cpe.Products
	}
	ignored, err := o.Rules.ignored()
	if err != nil {
		return nil, err
	}
	return &matcher{
		db: db, packages: packages, options: o, ignored: ignored,
		known: map[string]*vulndb.Vulnerability{},
	}, nil
}

// another returns a matcher of the same packages, for another goroutine.
func (j *matcher) another() *matcher {
	out := *j
	out.known = map[string]*vulndb.Vulnerability{}
	return &out
}

// run matches packages until no work is left.
func (j *matcher) run(ctx context.Context, w *work) error {
	for groups := w.take(); len(groups) > 0; groups = w.take() {
		for _, group := range groups {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := j.matchGroup(group); err != nil {
				return err
			}
		}
	}
	return nil
}

// matchGroup matches all versions of one package.
func (j *matcher) matchGroup(group []*catalog.Package) error {
	first := group[0]
	var topics []advisoryGroup
	e, ok := ecosystems[first.Kind]
	if ok {
		advisories, err := j.db.Advisories(e.name, first.Name)
		if err != nil {
			return fmt.Errorf("match %s %s: %w", first.Kind, first.Name, err)
		}
		topics = j.story.topics(e.topics(advisories))
	}
	for _, p := range group {
		if why := isNotComparable(p); why != "" {
			j.story.add("%s %s is not evaluated: %s.", p.Name, p.Version, why)
			continue
		}
		if err := j.matchPackage(e, p, topics); err != nil {
			return fmt.Errorf("match %s %s %s: %w", p.Kind, p.Name, p.Version, err)
		}
	}
	return nil
}

func (j *matcher) matchPackage(e ecosystem, p *catalog.Package, topics []advisoryGroup) error {
	found := findings{matcher: j, pkg: p}
	if len(topics) > 0 && cpe.IsCask(*p) {
		j.story.add("%s %s is a cask: what Homebrew says is about the formula of that name.", p.Name, p.Version)
		topics = nil
	}
	if len(topics) > 0 {
		s := e.subjectOf(p)
		for i := range topics {
			if err := j.matchAdvisories(&found, s, &topics[i]); err != nil {
				return err
			}
		}
	}
	if byProduct[p.Kind] {
		if err := j.matchProducts(&found, p, topics); err != nil {
			return err
		}
	}
	if found.notEvaluated != nil {
		j.result.NotEvaluated = append(j.result.NotEvaluated,
			NotEvaluated{Package: *p, Reason: found.notEvaluated.Error()})
	}
	return nil
}

// matchAdvisories evaluates the source that decides on a vulnerability.
func (j *matcher) matchAdvisories(found *findings, s subject, t *advisoryGroup) error {
	for _, a := range t.overruled {
		j.story.add("%s (%s) is not asked: %s (%s) comes first.", a.ID, a.Source, t.deciding[0].ID,
			t.deciding[0].Source)
	}
	var unconfirmed *Finding // a confirmed one takes precedence
	for _, a := range t.deciding {
		if !onPlatform(found.pkg, a.Platform) {
			j.story.add("%s (%s) is about packages for %s alone.", a.ID, a.Source, a.Platform)
			continue
		}
		v := j.verdict(s, a)
		if v.err != nil {
			found.notEvaluated = cmp.Or(s.err, fmt.Errorf("%s: %w", a.ID, v.err))
		}
		if !v.affected {
			continue
		}
		f := &Finding{
			CPE: firstOf(found.pkg.CPEs), Constraint: v.constraint, Fixed: v.fixed,
			Source: a.Source, Advisory: a.ID, Unconfirmed: a.Unconfirmed && !v.bounded,
		}
		if !f.Unconfirmed {
			return found.add(t.id, f)
		}
		unconfirmed = cmp.Or(unconfirmed, f)
	}
	if unconfirmed == nil {
		return nil
	}
	return found.add(t.id, unconfirmed)
}

// matchProducts evaluates NVD's statements about the products of a package. Homebrew's own records
// are nearer to its packages: a CVE with such a record is skipped.
func (j *matcher) matchProducts(found *findings, p *catalog.Package, topics []advisoryGroup) error {
	it := j.newItem(p)
	if len(it.products) == 0 {
		j.story.add("What NVD would call %s is not known.", p.Name)
	}
	for _, product := range it.products {
		j.story.add("NVD may have it as %s:%s.", product.Vendor, product.Product)
		var of []vulndb.Applicability // of one CVE
		for a, err := range j.db.EachApplicability(product.Vendor, product.Product) {
			if err != nil {
				return err
			}
			if len(of) > 0 && of[0].ID != a.ID {
				if err := j.matchCVE(found, &it, of, topics); err != nil {
					return err
				}
				of = of[:0]
			}
			of = append(of, a)
		}
		if err := j.matchCVE(found, &it, of, topics); err != nil {
			return err
		}
	}
	return nil
}

// productSources are in order of precedence, as those of ecosystems.
var productSources = []vulndb.Source{vulndb.NVD, vulndb.CNA, vulndb.ADP}

// decidingOn returns the configurations of the source with the highest precedence.
func decidingOn(of []vulndb.Applicability) []vulndb.Applicability {
	for _, s := range productSources {
		if slices.ContainsFunc(of, func(a vulndb.Applicability) bool { return a.Source == s }) {
			return slices.DeleteFunc(of, func(a vulndb.Applicability) bool { return a.Source != s })
		}
	}
	return of
}

// matchCVE evaluates the configurations of one CVE. One that applies is enough.
func (j *matcher) matchCVE(found *findings, it *productQuery, of []vulndb.Applicability, topics []advisoryGroup) error {
	if len(of) == 0 || found.has(of[0].ID) || !j.story.about(of[0].ID) {
		return nil
	}
	if i := slices.IndexFunc(topics, func(t advisoryGroup) bool { return t.id == of[0].ID }); i >= 0 {
		j.story.add("What NVD says of %s is not asked: %s does.", of[0].ID, topics[i].deciding[0].ID)
		return nil
	}
	of = decidingOn(of)
	for i := range of {
		c := j.evaluate(it, &of[i])
		j.traceConfiguration(it, &of[i], &c)
		if c.err != nil {
			found.notEvaluated = cmp.Or(it.err, fmt.Errorf("%s: %w", of[i].ID, c.err))
		}
		if !c.holds {
			continue
		}
		f := &Finding{
			CPE: c.criterion.CPE, Constraint: criterionText(&c.name, c.criterion),
			Source: cmp.Or(of[i].Source, vulndb.NVD), Advisory: of[i].ID,
			Unconfirmed: !bounded(c.criterion) && c.name.version == "*",
		}
		if c.criterion.EndExcluding != "" {
			f.Fixed = []string{c.criterion.EndExcluding}
		}
		return found.add(of[i].ID, f)
	}
	return nil
}

// itemsOf returns the packages that are a product.
func (j *matcher) itemsOf(vendor, product string) []productQuery {
	if j.items == nil {
		j.items = map[string][]productQuery{}
		for i := range j.packages {
			p := &j.packages[i]
			if !byProduct[p.Kind] {
				continue
			}
			it := j.newItem(p)
			for _, n := range it.products {
				key := n.Vendor + ":" + n.Product
				j.items[key] = append(j.items[key], it)
			}
		}
	}
	return j.items[vendor+":"+product]
}

func firstOf(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
