package inventorydb

import (
	"bytes"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/cpe"
	"github.com/buildyard/buildyard/internal/scan/match"
)

// Package is a package that is in at least one file.
type Package struct {
	ID      uint64
	Created time.Time
	catalog.Package

	queueRound uint64 // transaction after which it waits for a match; 0 is none
}

// assemblePackage assembles a package from the entries of its files; nil when the number is unknown.
func (t *tx) assemblePackage(id uint64) (*Package, error) {
	p, err := t.assemblePackageSince(id, 0)
	if err == nil && p == nil && t.packages.Get(numberKey(id)) != nil {
		err = fmt.Errorf("%w: no location is recorded for package %d", ErrDamaged, id)
	}
	return p, err
}

// assemblePackageSince assembles a package from the entries of its files with a number or higher ones; nil when it has
// none of them.
func (t *tx) assemblePackageSince(id, from uint64) (*Package, error) {
	b := t.packages.Get(numberKey(id))
	if b == nil {
		return nil, nil
	}
	r, err := parsePackageRecord(b)
	if err != nil {
		return nil, err
	}
	var parts []catalog.Package
	c := t.locations.Cursor()
	for k, v := c.Seek(appendNumber(numberKey(id), from)); bytes.HasPrefix(k, numberKey(id)); k, v = c.Next() {
		part, err := readLocation(v, r)
		if err != nil {
			return nil, err
		}
		file, err := numberAt(k, numberSize)
		if err != nil {
			return nil, err
		}
		path := t.paths.Get(numberKey(file))
		if path == nil {
			return nil, fmt.Errorf("%w: no path is recorded for file %d", ErrDamaged, file)
		}
		part.Locations = []string{"/" + string(path)}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return nil, nil
	}
	whole := catalog.Merge(parts)
	if len(whole) != 1 {
		return nil, fmt.Errorf("%w: the locations of package %d are of several packages", ErrDamaged, id)
	}
	p := &Package{ID: id, Created: r.created, Package: whole[0]}
	p.CPEs = cpe.ForPackage(p.Package)
	if w := t.awaitingMatch.Get(numberKey(id)); w != nil {
		u := recordReader{data: w}
		p.queueRound = u.uvarint()
		return p, u.finish()
	}
	return p, nil
}

// Packages returns up to limit packages that came at a time or later, ordered by number, after the
// given number. It also returns the number to continue after; 0 is the end.
func (l *DB) Packages(after uint64, from time.Time, limit int) (out []Package, next uint64, err error) {
	err = l.view(func(t *tx) error {
		c := t.packages.Cursor()
		for k, v := c.Seek(numberKey(after + 1)); k != nil; k, v = c.Next() {
			id, err := numberAt(k, 0)
			if err != nil {
				return err
			}
			r, err := parsePackageRecord(v)
			if err != nil {
				return err
			}
			if r.created.Before(from) {
				continue
			}
			p, err := t.assemblePackage(id)
			if err != nil {
				return err
			}
			out = append(out, *p)
			if len(out) == limit {
				next = id
				return nil
			}
		}
		return nil
	})
	return out, next, err
}

// PackagesByID returns the packages with the given numbers, without unknown ones.
func (l *DB) PackagesByID(ids []uint64) (out []Package, err error) {
	err = l.view(func(t *tx) error {
		for _, id := range ids {
			p, err := t.assemblePackage(id)
			if err != nil {
				return err
			}
			if p != nil {
				out = append(out, *p)
			}
		}
		return nil
	})
	return out, err
}

// PackageCursor is a position in the order of kinds, names and versions; the zero value is the
// beginning.
type PackageCursor struct{ key []byte }

// PackagesByName returns up to limit packages in the order of kinds, names and versions, which is nearly
// that of a vulnerability database. It also returns the position to continue after.
func (l *DB) PackagesByName(after PackageCursor, limit int) (out []Package, next PackageCursor, err error) {
	err = l.view(func(t *tx) error {
		c := t.names.Cursor()
		k, v := c.Seek(after.key)
		if k != nil && after.key != nil && bytes.Equal(k, after.key) {
			k, v = c.Next()
		}
		for ; k != nil && len(out) < limit; k, v = c.Next() {
			p, err := t.packageOfNumber(v)
			if err != nil {
				return err
			}
			out, next = append(out, *p), PackageCursor{bytes.Clone(k)}
		}
		return nil
	})
	return out, next, err
}

// PackageVersions returns up to limit packages with a kind, name and version: they differ in their
// architecture, release and owner.
func (l *DB) PackageVersions(
	kind catalog.PackageType, name, version string, limit int,
) (out []catalog.Package, err error) {
	err = l.view(func(t *tx) error {
		prefix := []byte(string(kind) + "\x00" + name + "\x00" + version)
		c := t.names.Cursor()
		for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix) && len(out) < limit; k, v = c.Next() {
			p, err := t.packageOfNumber(v)
			if err != nil {
				return err
			}
			if p.Version == version {
				out = append(out, p.Package)
			}
		}
		return nil
	})
	return out, err
}

// PackagesOfKinds returns all packages of some kinds, up to limit.
func (l *DB) PackagesOfKinds(kinds []catalog.PackageType, limit int) (out []Package, err error) {
	err = l.view(func(t *tx) error {
		for _, kind := range kinds {
			prefix := []byte(string(kind) + "\x00")
			c := t.names.Cursor()
			for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix) && len(out) < limit; k, v = c.Next() {
				p, err := t.packageOfNumber(v)
				if err != nil {
					return err
				}
				out = append(out, *p)
			}
		}
		return nil
	})
	return out, err
}

// packageOfNumber returns the package whose number a value of the name table has.
func (t *tx) packageOfNumber(value []byte) (*Package, error) {
	id, err := numberAt(value, 0)
	if err != nil {
		return nil, err
	}
	p, err := t.assemblePackage(id)
	if err == nil && p == nil {
		err = fmt.Errorf("%w: package %d has a name, but no record", ErrDamaged, id)
	}
	return p, err
}

// AwaitingMatch returns up to limit packages that wait for a match.
func (l *DB) AwaitingMatch(limit int) (out []Package, err error) {
	err = l.view(func(t *tx) error {
		c := t.awaitingMatch.Cursor()
		for k, _ := c.First(); k != nil && len(out) < limit; k, _ = c.Next() {
			id, err := numberAt(k, 0)
			if err != nil {
				return err
			}
			p, err := t.assemblePackage(id)
			if err != nil {
				return err
			}
			if p == nil {
				return fmt.Errorf("%w: package %d awaits matching, but has no record", ErrDamaged, id)
			}
			out = append(out, *p)
		}
		return nil
	})
	return out, err
}

// Finding is one vulnerability of a package.
type Finding struct {
	PackageID uint64
	FoundAt   time.Time
	match.Finding
}

// FindingCursor is a position in the order of findings; the zero value is the beginning.
type FindingCursor struct{ key []byte }

// Findings returns up to limit findings that were known at a time or later, after a position, and
// the position to continue after; false is the end.
func (l *DB) Findings(
	after FindingCursor, from time.Time, limit int,
) (out []Finding, next FindingCursor, more bool, err error) {
	err = l.view(func(t *tx) error {
		var of *Package
		c := t.findings.Cursor()
		k, v := c.Seek(after.key)
		if k != nil && after.key != nil && bytes.Equal(k, after.key) {
			k, v = c.Next()
		}
		for ; k != nil; k, v = c.Next() {
			f, err := decodeFinding(k, v)
			if err != nil {
				return err
			}
			if f.FoundAt.Before(from) {
				continue
			}
			if of == nil || of.ID != f.PackageID {
				if of, err = t.assemblePackage(f.PackageID); err != nil {
					return err
				}
				if of == nil {
					return fmt.Errorf("%w: a finding refers to package %d, which has no record", ErrDamaged,
						f.PackageID)
				}
			}
			f.Package = of.Package
			out, next = append(out, f), FindingCursor{bytes.Clone(k)}
			if len(out) == limit {
				more = true
				return nil
			}
		}
		return nil
	})
	return out, next, more, err
}

// FindingsOf returns the findings of one package.
func (l *DB) FindingsOf(p *Package) (out []Finding, err error) {
	err = l.view(func(t *tx) error {
		c := t.findings.Cursor()
		for k, v := c.Seek(numberKey(p.ID)); bytes.HasPrefix(k, numberKey(p.ID)); k, v = c.Next() {
			f, err := decodeFinding(k, v)
			if err != nil {
				return err
			}
			f.Package = p.Package
			out = append(out, f)
		}
		return nil
	})
	return out, err
}

// decodeFinding decodes an entry of the table of findings, except for the package.
func decodeFinding(k, v []byte) (Finding, error) {
	id, err := numberAt(k, 0)
	if err != nil {
		return Finding{}, err
	}
	if len(v) < 8 {
		return Finding{}, fmt.Errorf("%w: a finding is truncated", ErrDamaged)
	}
	r := recordReader{data: v[:8]}
	out := Finding{PackageID: id, FoundAt: r.time()}
	out.Finding, err = parseFinding(v[8:], string(k[numberSize:]))
	return out, err
}

// findingRecords returns the records of a package's findings, by vulnerability ID.
func (t *tx) findingRecords(id uint64) (map[string][]byte, error) {
	out := map[string][]byte{}
	c := t.findings.Cursor()
	for k, v := c.Seek(numberKey(id)); bytes.HasPrefix(k, numberKey(id)); k, v = c.Next() {
		if len(v) < 8 {
			return nil, fmt.Errorf("%w: a finding is truncated", ErrDamaged)
		}
		out[string(k[numberSize:])] = bytes.Clone(v)
	}
	return out, nil
}

// MatchResult is the result of matching a package that was read from the inventory.
type MatchResult struct {
	Package      Package
	Findings     []match.Finding
	OwnerDecided int // findings left out because advisories about its owner decide
}

// SaveMatchResults stores verdicts, and returns the findings that were not known before. Obsolete ones
// are removed, the others keep their date. A package that changed since it was read is matched
// again later.
func (l *DB) SaveMatchResults(verdicts []MatchResult, at time.Time) (added []Finding, err error) {
	err = l.update(func(t *tx) error {
		added = nil
		for i := range verdicts {
			more, err := t.setMatchResult(&verdicts[i], at)
			if err != nil {
				return err
			}
			added = append(added, more...)
		}
		return nil
	})
	return added, err
}

func (t *tx) setMatchResult(v *MatchResult, at time.Time) (added []Finding, err error) {
	id := v.Package.ID
	if t.packages.Get(numberKey(id)) == nil {
		return nil, nil // it was removed since
	}
	old, err := t.findingRecords(id)
	if err != nil {
		return nil, err
	}
	for i := range v.Findings {
		f := &v.Findings[i]
		key, value := append(numberKey(id), f.Vulnerability.ID...), appendTime(nil, at)
		before, known := old[f.Vulnerability.ID]
		delete(old, f.Vulnerability.ID)
		if known {
			copy(value, before[:8])
		} else {
			added = append(added, Finding{PackageID: id, FoundAt: at, Finding: *f})
			t.totals.findings++
		}
		if value = appendFinding(value, f); bytes.Equal(value, before) {
			continue
		}
		if err := t.findings.Put(key, value); err != nil {
			return nil, err
		}
	}
	for gone := range old {
		if err := t.findings.Delete(append(numberKey(id), gone...)); err != nil {
			return nil, err
		}
		t.totals.findings--
	}
	if err := t.setOwnerDecided(id, uint64(v.OwnerDecided)); err != nil {
		return nil, err
	}
	return added, t.dequeueMatch(&v.Package)
}

// dequeueMatch removes a package from the list of waiting ones, unless it changed since it was read.
func (t *tx) dequeueMatch(p *Package) error {
	w := t.awaitingMatch.Get(numberKey(p.ID))
	if w == nil {
		return nil
	}
	r := recordReader{data: w}
	if r.uvarint() != p.queueRound {
		return r.err
	}
	return t.awaitingMatch.Delete(numberKey(p.ID))
}
