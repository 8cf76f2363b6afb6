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
	db               DB
	packages         []catalog.Package
	options          Options
	vulnerabilities  map[string]*vulndb.Vulnerability // looked up before, by ID
	queriesByProduct map[string][]productQuery        // by "vendor:product"; nil until first used
	ignoredCPEs      map[string]bool                  // CPEs of packages that are left out
	queriesErr       error                            // of filling queriesByProduct
	trace            *trace                           // of Explain; nil otherwise
	findings         []*Finding
	result           Result // without its findings

	missing map[coverageKey]bool        // what the database has no advisories for; shared, read only
	owners  map[string]*catalog.Package // as of ownersOf; shared, read only

	ownerNames     map[string]map[string]bool // as of namesAbout, by query
	ownerNameCount int                        // in all of ownerNames

	queries     []advisoryQuery // of the current group; reused
	evaluations []evaluation    // of the current group; reused
}

func newMatcher(db DB, packages []catalog.Package, o Options) (*matcher, error) {
	ignored, err := o.Rules.ignoredCPEs()
	if err != nil {
		return nil, err
	}
	return &matcher{
		db: db, packages: packages, options: o, ignoredCPEs: ignored,
		vulnerabilities: map[string]*vulndb.Vulnerability{},
		missing:         map[coverageKey]bool{}, owners: ownersOf(packages, o.Owners),
		ownerNames: map[string]map[string]bool{},
	}, nil
}

// clone returns a matcher of the same packages, for another goroutine.
func (j *matcher) clone() *matcher {
	out := *j
	out.vulnerabilities = map[string]*vulndb.Vulnerability{}
	out.ownerNames = map[string]map[string]bool{}
	out.queries, out.evaluations = nil, nil
	out.result = Result{}
	return &out
}

// run matches packages until no work is left.
func (j *matcher) run(ctx context.Context, w *groupQueue) error {
	for groups := w.next(); len(groups) > 0; groups = w.next() {
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

// evaluation has the advisories of one query, grouped by vulnerability.
type evaluation struct {
	advisoryQuery
	topics []advisoryGroup
}

// matchGroup matches all versions of one package.
func (j *matcher) matchGroup(group []*catalog.Package) error {
	first := group[0]
	if len(j.missing) > 0 && j.missing[coverageKeyOf(first)] && !matchedByProduct[first.Kind] {
		return nil
	}
	evaluations, err := j.evaluationsOf(first)
	if err != nil {
		return fmt.Errorf("match %s %s: %w", first.Kind, first.Name, err)
	}
	for _, p := range group {
		if why := notComparableReason(p); why != "" {
			j.trace.add("%s %s is not evaluated: %s.", p.Name, p.Version, why)
			continue
		}
		if err := j.matchPackage(p, evaluations); err != nil {
			return fmt.Errorf("match %s %s %s: %w", p.Kind, p.Name, p.Version, err)
		}
	}
	return nil
}

// evaluationsOf reads the advisories about a package.
func (j *matcher) evaluationsOf(p *catalog.Package) ([]evaluation, error) {
	j.queries = queriesOf(j.queries[:0], p)
	out := j.evaluations[:0]
	for _, q := range j.queries {
		advisories, err := j.db.Advisories(q.name, q.packageName)
		if err != nil {
			return nil, err
		}
		if err := j.traceMissing(q.name); err != nil {
			return nil, err
		}
		topics := j.trace.selectGroups(q.groupAdvisories(advisories))
		for i := range out { // one that precedes decides
			topics = slices.DeleteFunc(topics, func(t advisoryGroup) bool { return hasTopic(out[i].topics, t.id) })
		}
		out = append(out, evaluation{q, topics})
	}
	j.evaluations = out
	return out, nil
}

// traceMissing records that the database has no advisories of a release of a distribution.
func (j *matcher) traceMissing(eco vulndb.Ecosystem) error {
	if j.trace == nil || eco.Distribution() == "" {
		return nil
	}
	found, err := j.db.HasEcosystem(eco)
	if err == nil && !found {
		j.trace.add("The database has no advisories for %s.", eco)
	}
	return err
}

func hasTopic(topics []advisoryGroup, id string) bool {
	return slices.ContainsFunc(topics, func(t advisoryGroup) bool { return t.id == id })
}

func (j *matcher) matchPackage(p *catalog.Package, evaluations []evaluation) error {
	found := findingCollector{matcher: j, pkg: p}
	if mark := otherVendor(p.Kind, p.Version); mark != "" {
		why := fmt.Sprintf("its version has %q, of another vendor than that of the advisories for %s", mark,
			p.Distribution)
		j.trace.add("%s %s is not evaluated: %s.", p.Name, p.Version, why)
		j.result.NotEvaluated = append(j.result.NotEvaluated, NotEvaluated{Package: *p, Reason: why})
		return nil
	}
	if isOwned(p) {
		j.trace.add("%s %s belongs to %s: advisories of %s about that decide, and whether anything else was patched "+
			"is unknown.", p.Name, p.Version, p.Owner, p.Distribution)
		found.distroPatched = DistroPatchedUnknown
	}
	var topics []advisoryGroup // that NVD does not decide
	for i := range evaluations {
		e := &evaluations[i]
		if len(e.topics) > 0 && cpe.IsCask(*p) {
			j.trace.add("%s %s is a cask: what Homebrew says is about the formula of that name.", p.Name, p.Version)
			continue
		}
		if err := j.matchTopics(&found, e); err != nil {
			return err
		}
		if i == 0 {
			topics = e.topics
		} else {
			topics = slices.Concat(topics, e.topics)
		}
	}
	if matchedByProduct[p.Kind] {
		if err := j.matchProducts(&found, p, topics); err != nil {
			return err
		}
	}
	if isUnnamed(p) {
		j.trace.add("%s %s is not evaluated: %v.", p.Name, p.Version, errNoRepository)
		found.notEvaluatedErr = errNoRepository
	}
	if found.notEvaluatedErr != nil && !found.evaluated {
		j.result.NotEvaluated = append(j.result.NotEvaluated,
			NotEvaluated{Package: *p, Reason: found.notEvaluatedErr.Error()})
	}
	return nil
}

// matchTopics evaluates the advisories of one query.
func (j *matcher) matchTopics(found *findingCollector, e *evaluation) error {
	if len(e.topics) == 0 {
		return nil
	}
	s, known := e.versionFor(found.pkg)
	if !known {
		j.trace.add("Its version %s is not that of its source %s %s.", s.raw, found.pkg.Source, found.pkg.SourceVersion)
		found.notEvaluatedErr = fmt.Errorf("advisories are about its source %s, whose version %s is not that of the "+
			"package", found.pkg.Source, found.pkg.SourceVersion)
		return nil
	}
	for i := range e.topics {
		if err := j.matchAdvisories(found, s, &e.topics[i]); err != nil {
			return err
		}
	}
	return nil
}

// matchAdvisories evaluates the source that decides on a vulnerability.
func (j *matcher) matchAdvisories(found *findingCollector, s packageVersion, t *advisoryGroup) error {
	for _, a := range t.overruled {
		j.trace.add("%s (%s) is not evaluated: %s (%s) takes precedence.", a.ID, a.Source, t.deciding[0].ID,
			t.deciding[0].Source)
	}
	var unconfirmed *Finding // a confirmed one takes precedence
	for _, a := range ofStream(found.pkg, s, t.deciding) {
		if !mayBeForPlatform(found.pkg, a.Platform) {
			j.trace.add("%s (%s) is about packages for %s alone.", a.ID, a.Source, a.Platform)
			continue
		}
		v := j.compareAdvisory(s, a)
		if v.err != nil {
			found.notEvaluatedErr = cmp.Or(s.err, fmt.Errorf("%s: %w", a.ID, v.err))
		} else {
			found.evaluated = true
		}
		if !v.affected {
			continue
		}
		f := &Finding{
			CPE: firstOrEmpty(found.pkg.CPEs), Constraint: v.constraint, Fixed: v.fixedVersions,
			Source: a.Source, Advisory: a.ID, Unconfirmed: a.Unconfirmed && !v.hasEnd,
		}
		if len(f.Fixed) == 0 {
			f.Fixed = found.otherFixes(s, t, a)
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
func (j *matcher) matchProducts(found *findingCollector, p *catalog.Package, topics []advisoryGroup) error {
	it, err := j.newProductQuery(p)
	if err != nil {
		return err
	}
	if len(it.products) == 0 {
		j.trace.add("What NVD would call %s is not known.", p.Name)
	}
	for _, product := range it.products {
		j.trace.add("NVD may have it as %s:%s.", product.Vendor, product.Product)
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

// decidingApplicabilities returns the configurations of the source with the highest precedence.
func decidingApplicabilities(of []vulndb.Applicability) []vulndb.Applicability {
	for _, s := range productSources {
		if slices.ContainsFunc(of, func(a vulndb.Applicability) bool { return a.Source == s }) {
			return slices.DeleteFunc(of, func(a vulndb.Applicability) bool { return a.Source != s })
		}
	}
	return of
}

// matchCVE evaluates the configurations of one CVE. One that applies is enough.
func (j *matcher) matchCVE(
	found *findingCollector, it *productQuery, of []vulndb.Applicability, topics []advisoryGroup,
) error {
	if len(of) == 0 || found.hasID(of[0].ID) || !j.trace.wants(of[0].ID) {
		return nil
	}
	if i := slices.IndexFunc(topics, func(t advisoryGroup) bool { return t.id == of[0].ID }); i >= 0 {
		j.trace.add("NVD is ignored for %s: %s decides it.", of[0].ID, topics[i].deciding[0].ID)
		return nil
	}
	of = decidingApplicabilities(of)
	for i := range of {
		c := j.evaluate(it, &of[i])
		if j.queriesErr != nil {
			return j.queriesErr
		}
		j.traceConfiguration(it, &of[i], &c)
		if c.err != nil {
			found.notEvaluatedErr = cmp.Or(it.err, fmt.Errorf("%s: %w", of[i].ID, c.err))
		} else if it.err == nil {
			found.evaluated = true
		}
		if !c.applies {
			continue
		}
		f := &Finding{
			CPE: c.criterion.CPE, Constraint: criterionText(&c.cpe, c.criterion),
			Source: cmp.Or(of[i].Source, vulndb.NVD), Advisory: of[i].ID,
			Unconfirmed: !hasVersionBounds(c.criterion) && c.cpe.version == "*",
		}
		if c.criterion.EndExcluding != "" {
			f.Fixed = []string{c.criterion.EndExcluding}
		}
		found.evaluated = true
		return found.add(of[i].ID, f)
	}
	return nil
}

// queriesFor returns the packages that are a product, none where queriesErr is set.
func (j *matcher) queriesFor(vendor, product string) []productQuery {
	if j.queriesByProduct == nil {
		j.queriesByProduct = map[string][]productQuery{}
		for i := range j.packages {
			p := &j.packages[i]
			if !matchedByProduct[p.Kind] {
				continue
			}
			it, err := j.newProductQuery(p)
			if err != nil {
				j.queriesErr = err
				return nil
			}
			for _, n := range it.products {
				key := n.Vendor + ":" + n.Product
				j.queriesByProduct[key] = append(j.queriesByProduct[key], it)
			}
		}
	}
	return j.queriesByProduct[vendor+":"+product]
}

func firstOrEmpty(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
