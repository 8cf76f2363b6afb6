package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/host/inventorydb"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/update"
)

const (
	judgedAtOnce = 2048    // packages
	mostProducts = 100_000 // packages that are matched together
)

// match matches waiting packages against the database. When another goroutine is already matching,
// that one takes them as well, and the call returns immediately.
func (h *Host) match(ctx context.Context, s *step) error {
	h.again.Store(true)
	for h.again.Load() {
		if !h.judging.TryLock() {
			return nil
		}
		err := h.startMatchLocked(ctx, s)
		h.judging.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// matchAll calls match and waits until all packages are matched.
func (h *Host) matchAll(ctx context.Context, s *step) error {
	h.judging.Lock()
	err := h.startMatchLocked(ctx, s)
	return errors.Join(err, h.endMatching(ctx, s))
}

// endMatching releases the lock, then matches what other goroutines left to this one.
func (h *Host) endMatching(ctx context.Context, s *step) error {
	h.judging.Unlock()
	if !h.again.Load() || ctx.Err() != nil {
		return nil
	}
	return h.match(ctx, s)
}

// startMatchLocked opens the database for the duration of a match. Without one, packages wait.
func (h *Host) startMatchLocked(ctx context.Context, s *step) error {
	h.again.Store(false)
	h.judges.Store(true)
	defer h.judges.Store(false)
	defer h.o.Calm.working()()
	var db *vulndb.DB
	err := update.Verify(h.o.Database.Path, h.o.Database.Key)
	if err == nil {
		db, err = vulndb.Open(h.o.Database.Path)
	}
	if err != nil {
		if h.o.Database.Path == "" || errors.Is(err, os.ErrNotExist) {
			err = nil // the status reports it
		}
		h.noteDatabase(err)
		return nil
	}
	defer func() { _ = db.Close() }() // read only
	h.noteDatabase(nil)
	totals, by := h.book.Totals(), inventorydb.Database{Built: db.Info().Built, Size: db.Info().Size}
	j := &matchRun{host: h, db: db, step: s, at: h.now()}
	if !totals.Matched.Is(by) || s.counts.New > totals.Packages/4 && s.counts.New > judgedAtOnce {
		if err := j.everything(ctx); err != nil {
			return h.notCompared(err)
		}
		if !totals.Matched.Is(by) {
			return h.book.SetMatched(by)
		}
		return nil
	}
	if err := j.waiting(ctx); err != nil {
		return h.notCompared(err)
	}
	return nil
}

// notCompared returns the error of a comparison. The status reports a damaged database.
func (h *Host) notCompared(err error) error {
	if errors.Is(err, vulndb.ErrDamaged) {
		h.noteDatabase(err)
	}
	return fmt.Errorf("match packages with the vulnerability database: %w", err)
}

// matchRun is one comparison.
type matchRun struct {
	host  *Host
	db    *vulndb.DB
	step  *step
	at    time.Time
	most  int                 // packages that are matched together; 0 is mostProducts
	whole map[uint64]struct{} // IDs of those matched together the last time
	over  bool                // there are more of them
}

// everything matches all packages, in the order in which the database stores its advisories.
func (j *matchRun) everything(ctx context.Context) error {
	if err := j.together(ctx); err != nil {
		return err
	}
	var at inventorydb.PackageCursor
	for {
		list, next, err := j.host.book.ByName(at, judgedAtOnce)
		if err != nil || len(list) == 0 {
			return err
		}
		if err := j.alone(ctx, list); err != nil {
			return err
		}
		at = next
	}
}

// waiting matches packages that came or changed, including those that do during the match.
func (j *matchRun) waiting(ctx context.Context) error {
	if j.step.products {
		if err := j.together(ctx); err != nil {
			return err
		}
	}
	for {
		list, err := j.host.book.AwaitingMatch(judgedAtOnce)
		if err != nil || len(list) == 0 {
			return err
		}
		if !j.over && slices.ContainsFunc(list, func(p inventorydb.Package) bool { return match.ByProduct(p.Kind) }) {
			if err := j.together(ctx); err != nil {
				return err
			}
		}
		if err := j.alone(ctx, list); err != nil {
			return err
		}
		j.whole = nil // those of them that come again have changed
	}
}

// together matches packages of those kinds of which one may affect the match of another.
func (j *matchRun) together(ctx context.Context) error {
	var kinds []catalog.PackageType
	for _, k := range catalog.Kinds {
		if match.ByProduct(k) {
			kinds = append(kinds, k)
		}
	}
	most := cmp.Or(j.most, mostProducts)
	list, err := j.host.book.OfKinds(kinds, most)
	if err != nil {
		return err
	}
	j.over, j.whole = len(list) == most, make(map[uint64]struct{}, len(list))
	for _, p := range list {
		j.whole[p.ID] = struct{}{}
	}
	return j.keep(ctx, list)
}

// alone matches packages of a list that need no others, and those above the limit of packages
// matched together.
func (j *matchRun) alone(ctx context.Context, list []inventorydb.Package) error {
	out := list[:0]
	for _, p := range list {
		if _, done := j.whole[p.ID]; !match.ByProduct(p.Kind) || j.over && !done {
			out = append(out, p)
		}
	}
	return j.keep(ctx, out)
}

// keep matches packages and stores the findings. The rules apply to reports only: here every
// finding counts.
func (j *matchRun) keep(ctx context.Context, list []inventorydb.Package) error {
	if len(list) == 0 {
		return ctx.Err()
	}
	packages := make([]catalog.Package, len(list))
	index := make(map[packageKey]int, len(list))
	verdicts := make([]inventorydb.Verdict, len(list))
	for i, p := range list {
		packages[i], verdicts[i].Package = p.Package, p
		index[keyOf(&p.Package)] = i
	}
	result, err := match.Match(ctx, j.db, packages,
		match.Options{Rules: match.Rules{Packages: []string{}}, Begin: yield})
	if err != nil {
		return err
	}
	for i := range result.Findings {
		f := &result.Findings[i]
		if at, ok := index[keyOf(&f.Package)]; ok {
			verdicts[at].Findings = append(verdicts[at].Findings, *f)
		}
	}
	added, err := j.host.book.SaveVerdicts(verdicts, j.at)
	if err != nil {
		return err
	}
	j.host.work.matched.Add(uint64(len(list)))
	j.host.work.findings.Add(uint64(len(added)))
	j.step.found(added, j.host.sieve.Load().Keep)
	return nil
}

// packageKey identifies a package of the inventory.
type packageKey struct {
	kind          catalog.PackageType
	name, version string
}

var seed = maphash.MakeSeed()

func (k packageKey) hash() uint64 { return maphash.Comparable(seed, k) }

func keyOf(p *catalog.Package) packageKey { return packageKey{p.Kind, p.Name, p.Version} }
