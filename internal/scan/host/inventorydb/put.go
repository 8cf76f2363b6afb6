package inventorydb

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// File is a file that was read.
type File struct {
	Path     string // from the root, without a slash
	Stamp    uint64 // stamp of the file when it was read
	Quiet    bool   // it is known but nothing is reported of it: it existed before the first scan
	Packages []catalog.Package
}

// Batch is the input of one Put.
type Batch struct {
	Files []File
	Sweep []Sweep
	Drop  []string // paths that are gone, with everything below
	At    time.Time

	// Stamp returns the current stamp of a path, and false when nothing is there. Files with another
	// stamp are not stored.
	Stamp func(path string) (mark uint64, ok bool)
	// There reports whether a path is a wanted file: a sweep keeps those.
	There func(path string) bool
}

// Sweep drops the files of a directory that no longer exist.
type Sweep struct {
	Folder       string   // from the root, without a slash; "." is the root
	After, Until string   // paths between which it looks; Until "" is to the end of the directory
	Keep         []string // files that exist, sorted
}

// Changes are what a batch changed.
type Changes struct {
	New     []uint64 // numbers of packages
	Removed []RemovedPackage
	Stale   []string // files that changed since they were read
}

// RemovedPackage is a package that is no longer in any file.
type RemovedPackage struct {
	ID            uint64
	Kind          catalog.PackageType
	Name, Version string
}

// sweepMost is how many files one transaction drops, so that it stays small.
const sweepMost = 10_000

// Put stores a batch. When it fails, some of what the batch drops may be dropped already.
func (l *DB) Put(b Batch) (Changes, error) {
	var out Changes
	if nothing, err := l.leavesAll(&b); nothing || err != nil {
		return out, err
	}
	for more := true; more; {
		more = false
		var c Changes
		err := l.update(func(t *tx) (err error) {
			c = Changes{}
			w := writer{tx: t, at: b.At, changes: &c}
			for i := range b.Files {
				if err := w.checked(&b.Files[i], b.Stamp); err != nil {
					return err
				}
			}
			more, err = w.clear(&b)
			return err
		})
		if err != nil {
			return out, err
		}
		b.Files = nil
		out.New = append(out.New, c.New...)
		out.Removed = append(out.Removed, c.Removed...)
		out.Stale = append(out.Stale, c.Stale...)
	}
	return out, nil
}

// leavesAll reports whether a batch changes nothing. That is usual after a walk without
// differences, and needs no write to the disk.
func (l *DB) leavesAll(b *Batch) (nothing bool, err error) {
	if len(b.Files) > 0 {
		return false, nil
	}
	err = l.view(func(t *tx) error {
		w := writer{tx: t}
		nothing = len(w.gone(b)) == 0
		return nil
	})
	return nothing, err
}

// writer changes tables within one transaction.
type writer struct {
	*tx
	at      time.Time
	changes *Changes
}

// checked stores a file that has not changed since it was read.
func (w *writer) checked(f *File, now func(string) (uint64, bool)) error {
	mark, ok := now(f.Path)
	switch {
	case !ok:
		return w.drop([]byte(f.Path))
	case mark != f.Stamp:
		w.changes.Stale = append(w.changes.Stale, f.Path)
		return nil
	default:
		return w.put(f)
	}
}

// clear drops what is gone, and reports whether more remains than one transaction takes.
func (w *writer) clear(b *Batch) (more bool, err error) {
	for i, path := range w.gone(b) {
		if i >= sweepMost {
			return true, nil
		}
		if err := w.drop(path); err != nil {
			return false, err
		}
	}
	return false, nil
}

// gone lists the files that a batch drops, up to one more than one transaction drops.
func (w *writer) gone(b *Batch) (list [][]byte) {
	for _, path := range b.Drop {
		if w.files.Get([]byte(path)) != nil {
			list = append(list, []byte(path))
		}
		list = w.between(list, Sweep{Folder: path}, nil)
	}
	for _, s := range b.Sweep {
		list = w.between(list, s, b.There)
	}
	return list
}

// between lists the files of a directory that are gone, up to one more than one transaction drops.
// Files that came since the walk are kept.
func (w *writer) between(list [][]byte, s Sweep, there func(string) bool) [][]byte {
	prefix := s.Folder + "/"
	if s.Folder == "." {
		prefix = ""
	}
	c := w.files.Cursor()
	for k, _ := c.Seek([]byte(max(prefix, s.After))); k != nil && len(list) <= sweepMost; k, _ = c.Next() {
		path := string(k)
		if !strings.HasPrefix(path, prefix) || s.Until != "" && path > s.Until {
			break
		}
		if path == s.After {
			continue
		}
		if _, kept := slices.BinarySearch(s.Keep, path); kept {
			continue
		}
		if there != nil && there(path) {
			continue
		}
		list = append(list, []byte(path))
	}
	return list
}

// put replaces the stored packages of a file.
func (w *writer) put(f *File) error {
	old, known, err := w.file([]byte(f.Path))
	if err != nil {
		return err
	}
	if !known {
		w.totals.files++
	}
	now := fileRecord{print: f.Stamp, era: w.totals.era, number: old.number}
	if f.Quiet {
		now.era, now.number = 0, 0
	}
	if len(f.Packages) > 0 && now.number == 0 {
		if now.number, err = w.numberFor(f.Path); err != nil {
			return err
		}
	}
	for i := range f.Packages {
		id, err := w.place(&f.Packages[i], now.number)
		if err != nil {
			return err
		}
		if id != 0 {
			now.packages = append(now.packages, id)
		}
	}
	slices.Sort(now.packages)
	now.packages = slices.Compact(now.packages)
	if len(now.packages) == 0 && now.number != 0 {
		if err := w.paths.Delete(keyOf(now.number)); err != nil {
			return err
		}
		now.number = 0
	}
	if err := w.unplace(old, now.packages); err != nil {
		return err
	}
	return w.files.Put([]byte(f.Path), now.append(nil))
}

// file returns the record of a file. One of a former era has no packages any more.
func (t *tx) file(path []byte) (fileRecord, bool, error) {
	b := t.files.Get(path)
	if b == nil {
		return fileRecord{}, false, nil
	}
	f, err := readFile(b)
	if f.era != t.totals.era {
		f.number, f.packages = 0, nil
	}
	return f, true, err
}

func (w *writer) numberFor(path string) (uint64, error) {
	n := w.totals.nextFile
	w.totals.nextFile++
	return n, w.paths.Put(keyOf(n), []byte(path))
}

// place records that a package is in a file, and returns its number; 0 when a limit is reached.
func (w *writer) place(p *catalog.Package, file uint64) (uint64, error) {
	if !keepable(p) {
		return 0, nil
	}
	r := packageRecord{created: w.at, kind: p.Kind, name: nameOf(p), version: p.Version}
	id, err := w.identify(&r)
	if id == 0 || err != nil {
		return 0, err
	}
	key, value := appendNumber(keyOf(id), file), appendPlace(nil, p)
	if bytes.Equal(w.places.Get(key), value) {
		return id, nil
	}
	if err := w.places.Put(key, value); err != nil {
		return 0, err
	}
	return id, w.requeueMatch(id)
}

// identify returns the number of a package, a new one when it has none.
func (w *writer) identify(r *packageRecord) (uint64, error) {
	key := r.identity()
	if b := w.names.Get(key); b != nil {
		return numberAt(b, 0)
	}
	if w.full || w.totals.nextPackage > maxNumber || w.totals.nextFile > maxNumber {
		w.totals.refused++
		return 0, nil
	}
	id := w.totals.nextPackage
	w.totals.nextPackage++
	w.totals.packages++
	w.changes.New = append(w.changes.New, id)
	if err := w.names.Put(key, keyOf(id)); err != nil {
		return 0, err
	}
	return id, w.packages.Put(keyOf(id), r.append(nil))
}

// requeueMatch queues a package for a comparison with the database: its files changed, and these
// decide under which names it is matched.
func (w *writer) requeueMatch(id uint64) error {
	return w.unjudged.Put(keyOf(id), binary.AppendUvarint(nil, uint64(w.ID())))
}

// unplace removes a file's packages, except for some.
func (w *writer) unplace(f fileRecord, but []uint64) error {
	for _, id := range f.packages {
		if _, stays := slices.BinarySearch(but, id); stays {
			continue
		}
		if err := w.places.Delete(appendNumber(keyOf(id), f.number)); err != nil {
			return err
		}
		if k, _ := w.places.Cursor().Seek(keyOf(id)); bytes.HasPrefix(k, keyOf(id)) {
			if err := w.requeueMatch(id); err != nil {
				return err
			}
		} else if err := w.remove(id); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a package that is in no file.
func (w *writer) remove(id uint64) error {
	b := w.packages.Get(keyOf(id))
	if b == nil {
		return nil
	}
	r, err := readPackage(b)
	if err != nil {
		return err
	}
	w.changes.Removed = append(w.changes.Removed,
		RemovedPackage{ID: id, Kind: r.kind, Name: r.name, Version: r.version})
	w.totals.packages--
	ids, err := w.findingsOf(id)
	if err != nil {
		return err
	}
	for v := range ids {
		if err := w.findings.Delete(append(keyOf(id), v...)); err != nil {
			return err
		}
		w.totals.findings--
	}
	if err := w.unjudged.Delete(keyOf(id)); err != nil {
		return err
	}
	if err := w.names.Delete(r.identity()); err != nil {
		return err
	}
	return w.packages.Delete(keyOf(id))
}

// drop deletes a file.
func (w *writer) drop(path []byte) error {
	f, known, err := w.file(path)
	if err != nil || !known {
		return err
	}
	if f.number != 0 {
		if err := w.paths.Delete(keyOf(f.number)); err != nil {
			return err
		}
	}
	if err := w.unplace(f, nil); err != nil {
		return err
	}
	w.totals.files--
	return w.files.Delete(path)
}

// Knowledge is how a file compares with its record.
type Knowledge int

// The values of Knowledge.
const (
	Unknown Knowledge = iota
	Changed           // its stamp differs from the one recorded
	Noted             // its stamp is the one recorded when it was noted without being reported
	Silent            // its stamp is the one recorded when it was read, before a reset
	Same              // its stamp is the one recorded when it was read
)

// Seen is a file in its current state.
type Seen struct {
	Path  string
	Stamp uint64
}

// Look compares files with their records.
func (l *DB) Look(files []Seen) ([]Knowledge, error) {
	out := make([]Knowledge, len(files))
	err := l.view(func(t *tx) error {
		for i, s := range files {
			b := t.files.Get([]byte(s.Path))
			if b == nil {
				continue
			}
			f, err := readFile(b)
			if err != nil {
				return err
			}
			switch {
			case f.print != s.Stamp:
				out[i] = Changed
			case f.era == 0:
				out[i] = Noted
			case f.era != t.totals.era:
				out[i] = Silent
			default:
				out[i] = Same
			}
		}
		return nil
	})
	return out, err
}

// BelowDir returns those of the paths at which or below which a file is known.
func (l *DB) BelowDir(paths []string) ([]string, error) {
	var out []string
	err := l.view(func(t *tx) error {
		for _, p := range paths {
			k, _ := t.files.Cursor().Seek([]byte(p))
			if k != nil && string(k) == p {
				out = append(out, p)
				continue
			}
			if k, _ = t.files.Cursor().Seek([]byte(p + "/")); k != nil && strings.HasPrefix(string(k), p+"/") {
				out = append(out, p)
			}
		}
		return nil
	})
	return out, err
}
