package vulndb

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
)

// DB is an open database. It is safe for concurrent reads.
type DB struct {
	file          io.Closer
	info          Info
	trees         map[sectionName]*tree
	sharedStrings *stringCache
}

// Open opens a database file and reads its header. Queries read no more blocks than they need, and
// verify the checksum of each.
func Open(path string) (*DB, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the vulnerability database: %w", err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = ErrNotDatabase
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	db, err := NewDB(f, st.Size())
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	db.file = f
	return db, nil
}

// NewDB returns the database in r, of the given size. Close does not close r.
func NewDB(r io.ReaderAt, size int64) (*DB, error) {
	h, err := readHeader(r, size)
	if err != nil {
		return nil, err
	}
	d, err := readDirectory(r, h)
	if err != nil {
		return nil, err
	}
	db := &DB{trees: map[sectionName]*tree{}, sharedStrings: newStringCache()}
	c := newBlockCache()
	z, err := newBlockDecoder()
	if err != nil {
		return nil, err
	}
	for _, name := range sectionOrder {
		s := d.Sections[name]
		db.trees[name] = &tree{
			r: r, cache: c, decoder: z, beginOffset: s.Begin, root: blockHandle{s.Root, s.Length},
			entryCount: s.Entries,
		}
	}
	db.info = Info{
		Schema: h.schema, Built: d.Built, Sources: d.Sources, Size: size,
		Advisories:      d.Sections[advisorySection].Entries,
		Applicabilities: d.Sections[applicabilitySection].Entries,
		Vulnerabilities: d.Sections[vulnerabilitySection].Entries,
	}
	return db, nil
}

// Close closes the file that Open opened.
func (db *DB) Close() error {
	if db.file == nil {
		return nil
	}
	return db.file.Close()
}

// Info describes the database.
func (db *DB) Info() Info { return db.info }

// Advisories returns the records of all sources about a package, sorted by ID and source. The name
// is normalized as by Key.
func (db *DB) Advisories(eco Ecosystem, name string) ([]Advisory, error) {
	cost := maxResultBytes
	return collectAll(db.scanAdvisories(advisoryPrefix(eco, name), &cost))
}

// HasEcosystem reports whether any advisory is of an ecosystem, or of that release of a distribution.
func (db *DB) HasEcosystem(eco Ecosystem) (found bool, err error) {
	err = db.trees[advisorySection].scan(ecosystemPrefix(eco), func(_, _ []byte) (bool, error) {
		found = true
		return false, nil
	})
	return found, err
}

// HasApplicabilities reports whether the database has any configuration.
func (db *DB) HasApplicabilities() bool { return db.info.Applicabilities > 0 }

// EachApplicability iterates over the configurations that name a product as vulnerable, sorted by
// CVE; a popular product has thousands. For a node that holds when one criterion does, only those
// of this product are returned where no other part of the configuration depends on the others.
func (db *DB) EachApplicability(vendor, product string) iter.Seq2[Applicability, error] {
	return db.scanApplicabilities(applicabilityPrefix(vendor, product))
}

// Vulnerability returns the record of an ID, and false when there is none.
func (db *DB) Vulnerability(id string) (Vulnerability, bool, error) {
	b, found, err := db.trees[vulnerabilitySection].get([]byte(id))
	if err != nil || !found {
		return Vulnerability{}, false, err
	}
	d := newDecoder(b)
	v := d.vulnerability(db.sharedString, id)
	return v, true, d.finish()
}

// AllAdvisories iterates over all advisories, by ecosystem and name.
func (db *DB) AllAdvisories() iter.Seq2[Advisory, error] { return db.scanAdvisories(nil, nil) }

// Verify reads every record, and so verifies the checksum of every block.
func (db *DB) Verify(ctx context.Context) error {
	for _, name := range sectionOrder {
		n := 0
		err := db.trees[name].scan(nil, func(_, _ []byte) (bool, error) {
			n++
			return true, ctx.Err()
		})
		if err != nil {
			return err
		}
		if n != db.trees[name].entryCount {
			return fmt.Errorf("%w: it has %d %s instead of %d", ErrDamaged, n, name, db.trees[name].entryCount)
		}
	}
	return nil
}

func (db *DB) scanAdvisories(prefix []byte, cost *int) iter.Seq2[Advisory, error] {
	return decodeEntries(db.trees[advisorySection], prefix, cost, func(_ string, d *decoder) Advisory {
		return d.advisory(db.sharedString)
	})
}

func (db *DB) scanApplicabilities(prefix []byte) iter.Seq2[Applicability, error] {
	return decodeEntries(db.trees[applicabilitySection], prefix, nil, func(key string, d *decoder) Applicability {
		parts := strings.Split(key, "\x00")
		if len(parts) < 3 {
			d.setError("an entry has a wrong key")
			return Applicability{}
		}
		return d.applicability(db.sharedString, parts[2], cpePrefix(parts[0], parts[1]))
	})
}

// sharedString returns a shared text by its number.
func (db *DB) sharedString(n uint64) (string, error) {
	if n > maxSharedStrings {
		return "", fmt.Errorf("%w: string %d does not exist", ErrDamaged, n)
	}
	if s, ok := db.sharedStrings.get(n); ok {
		return s, nil
	}
	b, found, err := db.trees[stringSection].get(binary.BigEndian.AppendUint32(nil, uint32(n)))
	if err == nil && !found {
		err = fmt.Errorf("%w: string %d is missing", ErrDamaged, n)
	}
	if err != nil {
		return "", err
	}
	s := string(b)
	db.sharedStrings.put(n, s)
	return s, nil
}

func newDecoder(b []byte) *decoder {
	cost := maxResultBytes
	return &decoder{data: b, memoryBudget: &cost}
}

// finish returns the first error of the record, or an error when bytes are left.
func (d *decoder) finish() error {
	if d.err == nil && len(d.data) > 0 {
		d.setError("%d bytes follow a record", len(d.data))
	}
	return d.err
}

// decodeEntries decodes the records under a prefix one by one, and ends with the first error.
// Cost bounds all of them together; nil bounds each.
func decodeEntries[T any](
	t *tree, prefix []byte, cost *int, decode func(key string, d *decoder) T,
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		err := t.scan(prefix, func(key, value []byte) (bool, error) {
			d := newDecoder(value)
			if cost != nil {
				d.memoryBudget = cost
			}
			v := decode(string(key), d)
			if err := d.finish(); err != nil {
				return false, err
			}
			return yield(v, nil), nil
		})
		if err != nil {
			var none T
			yield(none, err)
		}
	}
}

// collectAll returns a sequence as a list.
func collectAll[T any](seq iter.Seq2[T, error]) ([]T, error) {
	var list []T
	for v, err := range seq {
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}
