package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/host/inventorydb"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/update"
)

const (
	matchBatchPackages = 2048    // packages
	maxProductPackages = 100_000 // packages that are matched together
	maxOwnerVersions   = 64      // packages of one name and version: architectures and releases
)

// match matches waiting packages against the database. When another goroutine is already matching,
// that one takes them as well, and the call returns immediately.
func (h *Host) match(ctx context.Context, s *changeCollector) error {
	h.matchAgain.Store(true)
	for h.matchAgain.Load() {
		if !h.matchMu.TryLock() {
			return nil
		}
		err := h.startMatchLocked(ctx, s)
		h.matchMu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// matchAll calls match and waits until all packages are matched.
func (h *Host) matchAll(ctx context.Context, s *changeCollector) error {
	h.matchMu.Lock()
	err := h.startMatchLocked(ctx, s)
	return errors.Join(err, h.endMatching(ctx, s))
}

// endMatching releases the lock, then matches what other goroutines left to this one.
func (h *Host) endMatching(ctx context.Context, s *changeCollector) error {
	h.matchMu.Unlock()
	if !h.matchAgain.Load() || ctx.Err() != nil {
		return nil
	}
	return h.match(ctx, s)
}

// startMatchLocked opens the database for the duration of a match. Without one, packages wait.
func (h *Host) startMatchLocked(ctx context.Context, s *changeCollector) error {
	h.matchAgain.Store(false)
	h.matching.Store(true)
	defer h.matching.Store(false)
	defer h.opts.GC.hold()()
	var db *vulndb.DB
	err := update.Verify(h.opts.Database.Path, h.opts.Database.Key)
	if err == nil {
		db, err = vulndb.Open(h.opts.Database.Path)
	}
	if err != nil {
		if h.opts.Database.Path == "" || errors.Is(err, os.ErrNotExist) {
			err = nil // the status reports it
		}
		h.setDatabaseError(err)
		return nil
	}
	defer func() { _ = db.Close() }() // read only
	h.setDatabaseError(nil)
	totals, by := h.inventory.Totals(), inventorydb.DatabaseID{Built: db.Info().Built, Size: db.Info().Size}
	j := &matchRun{host: h, vulnDB: db, changes: s, startedAt: h.monotonicNow()}
	if !totals.Matched.Equals(by) || s.counts.New > totals.Packages/4 && s.counts.New > matchBatchPackages {
		if err := j.matchAll(ctx); err != nil {
			return h.matchError(err)
		}
		if !totals.Matched.Equals(by) {
			return h.inventory.SetMatched(by)
		}
		return nil
	}
	if err := j.matchWaiting(ctx); err != nil {
		return h.matchError(err)
	}
	return nil
}

// matchError returns the error of a comparison. The status reports a damaged database.
func (h *Host) matchError(err error) error {
	if errors.Is(err, vulndb.ErrDamaged) {
		h.setDatabaseError(err)
	}
	return fmt.Errorf("match packages with the vulnerability database: %w", err)
}

// matchRun is one comparison.
type matchRun struct {
	host            *Host
	vulnDB          *vulndb.DB
	changes         *changeCollector
	startedAt       time.Time
	maxTogether     int                 // packages that are matched together; 0 is maxProductPackages
	matchedTogether map[uint64]struct{} // IDs of those matched together the last time
	exceedsMax      bool                // there are more of them
	missing         []match.NoAdvisories
}

// matchAll matches all packages, in the order in which the database stores its advisories.
func (j *matchRun) matchAll(ctx context.Context) error {
	if err := j.matchProducts(ctx); err != nil {
		return err
	}
	var at inventorydb.PackageCursor
	for {
		list, next, err := j.host.inventory.PackagesByName(at, matchBatchPackages)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			j.host.setMissing(j.missing)
			return nil
		}
		if err := j.matchIndividually(ctx, list); err != nil {
			return err
		}
		at = next
	}
}

// matchWaiting matches packages that came or changed, including those that do during the match.
func (j *matchRun) matchWaiting(ctx context.Context) error {
	if j.changes.productsChanged {
		if err := j.matchProducts(ctx); err != nil {
			return err
		}
	}
	for {
		list, err := j.host.inventory.AwaitingMatch(matchBatchPackages)
		if err != nil || len(list) == 0 {
			return err
		}
		if !j.exceedsMax &&
			slices.ContainsFunc(list, func(p inventorydb.Package) bool { return match.IsMatchedByProduct(p.Kind) }) {
			if err := j.matchProducts(ctx); err != nil {
				return err
			}
		}
		if err := j.matchIndividually(ctx, list); err != nil {
			return err
		}
		j.matchedTogether = nil // those of them that come again have changed
	}
}

// matchProducts matches packages of those kinds of which one may affect the match of another.
func (j *matchRun) matchProducts(ctx context.Context) error {
	var kinds []catalog.PackageType
	for _, k := range catalog.Kinds {
		if match.IsMatchedByProduct(k) {
			kinds = append(kinds, k)
		}
	}
	most := cmp.Or(j.maxTogether, maxProductPackages)
	list, err := j.host.inventory.PackagesOfKinds(kinds, most)
	if err != nil {
		return err
	}
	j.exceedsMax, j.matchedTogether = len(list) == most, make(map[uint64]struct{}, len(list))
	for _, p := range list {
		j.matchedTogether[p.ID] = struct{}{}
	}
	return j.matchAndSave(ctx, list)
}

// matchIndividually matches packages of a list that need no others, and those above the limit of packages
// matched together.
func (j *matchRun) matchIndividually(ctx context.Context, list []inventorydb.Package) error {
	out := list[:0]
	for _, p := range list {
		if _, done := j.matchedTogether[p.ID]; !match.IsMatchedByProduct(p.Kind) || j.exceedsMax && !done {
			out = append(out, p)
		}
	}
	return j.matchAndSave(ctx, out)
}

// matchAndSave matches packages and stores the findings. The rules apply to reports only: here every
// finding counts.
func (j *matchRun) matchAndSave(ctx context.Context, list []inventorydb.Package) error {
	if len(list) == 0 {
		return ctx.Err()
	}
	packages := make([]catalog.Package, len(list))
	index := make(map[packageKey]int, len(list))
	verdicts := make([]inventorydb.MatchResult, len(list))
	for i, p := range list {
		packages[i], verdicts[i].Package = p.Package, p
		index[packageKeyOf(&p.Package)] = i
	}
	owners, err := j.ownersOf(packages)
	if err != nil {
		return err
	}
	result, err := match.Match(ctx, j.vulnDB, packages, match.Options{
		Rules: match.Rules{IgnoredPackages: []string{}}, Owners: owners, OnWorkerStart: lowerPriority,
	})
	if err != nil {
		return err
	}
	j.missing = mergeMissing(j.missing, result.NoAdvisories)
	j.host.addMissing(result.NoAdvisories)
	for i := range result.Findings {
		f := &result.Findings[i]
		if at, ok := index[packageKeyOf(&f.Package)]; ok {
			verdicts[at].Findings = append(verdicts[at].Findings, *f)
		}
	}
	for _, p := range result.OwnerDecided {
		if at, ok := index[packageKeyOf(p)]; ok {
			verdicts[at].OwnerDecided++
		}
	}
	added, err := j.host.inventory.SaveMatchResults(verdicts, j.startedAt)
	if err != nil {
		return err
	}
	j.host.counters.matched.Add(uint64(len(list)))
	j.host.counters.findings.Add(uint64(len(added)))
	j.changes.addFindings(added, j.host.ruleFilter.Load().Keep)
	return nil
}

// ownersOf returns the packages of the inventory that others belong to.
func (j *matchRun) ownersOf(packages []catalog.Package) (out []catalog.Package, err error) {
	seen := map[string]bool{}
	for _, p := range packages {
		if p.Owner == "" || p.Distribution == "" || seen[p.Owner] {
			continue
		}
		seen[p.Owner] = true
		kind, rest, _ := strings.Cut(p.Owner, "/")
		name, version, _ := strings.Cut(rest, "@")
		list, err := j.host.inventory.PackageVersions(catalog.PackageType(kind), name, version, maxOwnerVersions)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// addMissing adds kinds and releases without advisories to those that are known.
func (h *Host) addMissing(list []match.NoAdvisories) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := len(h.saved.Missing)
	if h.saved.Missing = mergeMissing(h.saved.Missing, list); len(h.saved.Missing) > known {
		h.saveStateLocked()
	}
}

// setMissing replaces the kinds and releases without advisories, after a match of all packages.
func (h *Host) setMissing(list []match.NoAdvisories) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.saved.Missing, list) {
		h.saved.Missing = list
		h.saveStateLocked()
	}
}

// mergeMissing adds what is new to a list, without the numbers of packages, which change.
func mergeMissing(to, list []match.NoAdvisories) []match.NoAdvisories {
	for _, n := range list {
		if n.Packages = 0; !slices.Contains(to, n) {
			to = append(to, n)
		}
	}
	return to
}

// missingText is the warning about a kind or release without advisories.
func missingText(n match.NoAdvisories) string {
	return "no advisories for " + n.Subject() + ": its packages are not evaluated"
}

// packageKey identifies a package of the inventory.
type packageKey struct {
	kind                      catalog.PackageType
	name, version             string
	owner, arch, distribution string
	source, sourceVersion     string
}

var hashSeed = maphash.MakeSeed()

func (k packageKey) hash() uint64 { return maphash.Comparable(hashSeed, k) }

func packageKeyOf(p *catalog.Package) packageKey {
	return packageKey{p.Kind, p.Name, p.Version, p.Owner, p.Arch, p.Distribution, p.Source, p.SourceVersion}
}
