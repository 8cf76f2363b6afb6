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
	Path       string // from the root, without a slash
	Stamp      uint64 // stamp of the file when it was read
	Unreported bool   // it is known but nothing is reported of it: it existed before the first scan
	Packages   []catalog.Package
}

// Batch is the input of one Put.
type Batch struct {
	Files       []File
	Prune       []DirPrune
	RemovePaths []string // paths that are gone, with everything below
	Time        time.Time

	// CurrentStamp returns the current stamp of a path, and false when nothing is there. Files with another
	// stamp are not stored.
	CurrentStamp func(path string) (mark uint64, ok bool)
	// Exists reports whether a path is a wanted file: a sweep keeps those.
	Exists func(path string) bool
}

// DirPrune drops the files of a directory that no longer exist.
type DirPrune struct {
	Dir          string   // from the root, without a slash; "." is the root
	After, Until string   // paths between which it looks; Until "" is to the end of the directory
	Existing     []string // files that exist, sorted
}

// Changes are what a batch changed.
type Changes struct {
	NewIDs  []uint64 // numbers of packages
	Removed []RemovedPackage
	Stale   []string // files that changed since they were read
}

// RemovedPackage is a package that is no longer in any file.
type RemovedPackage struct {
	ID            uint64
	Kind          catalog.PackageType
	Name, Version string
}

// maxRemovals is how many files one transaction drops, so that it stays small.
const maxRemovals = 10_000

// Put stores a batch. When it fails, some of what the batch drops may be dropped already.
func (l *DB) Put(b Batch) (Changes, error) {
	var out Changes
	if nothing, err := l.isNoop(&b); nothing || err != nil {
		return out, err
	}
	for more := true; more; {
		more = false
		var c Changes
		err := l.update(func(t *tx) (err error) {
			c = Changes{}
			w := writer{tx: t, time: b.Time, changes: &c}
			for i := range b.Files {
				if err := w.putIfUnchanged(&b.Files[i], b.CurrentStamp); err != nil {
					return err
				}
			}
			more, err = w.removeGone(&b)
			return err
		})
		if err != nil {
			return out, err
		}
		b.Files = nil
		out.NewIDs = append(out.NewIDs, c.NewIDs...)
		out.Removed = append(out.Removed, c.Removed...)
		out.Stale = append(out.Stale, c.Stale...)
	}
	return out, nil
}

// isNoop reports whether a batch changes nothing. That is usual after a walk without
// differences, and needs no write to the disk.
func (l *DB) isNoop(b *Batch) (nothing bool, err error) {
	if len(b.Files) > 0 {
		return false, nil
	}
	err = l.view(func(t *tx) error {
		w := writer{tx: t}
		nothing = len(w.goneFiles(b)) == 0
		return nil
	})
	return nothing, err
}

// writer changes tables within one transaction.
type writer struct {
	*tx
	time    time.Time
	changes *Changes
}

// putIfUnchanged stores a file that has not changed since it was read.
func (w *writer) putIfUnchanged(f *File, now func(string) (uint64, bool)) error {
	mark, ok := now(f.Path)
	switch {
	case !ok:
		return w.removeFile([]byte(f.Path))
	case mark != f.Stamp:
		w.changes.Stale = append(w.changes.Stale, f.Path)
		return nil
	default:
		return w.putFile(f)
	}
}

// removeGone drops what is gone, and reports whether more remains than one transaction takes.
func (w *writer) removeGone(b *Batch) (more bool, err error) {
	for i, path := range w.goneFiles(b) {
		if i >= maxRemovals {
			return true, nil
		}
		if err := w.removeFile(path); err != nil {
			return false, err
		}
	}
	return false, nil
}

// goneFiles lists the files that a batch drops, up to one more than one transaction drops.
func (w *writer) goneFiles(b *Batch) (list [][]byte) {
	for _, path := range b.RemovePaths {
		if w.files.Get([]byte(path)) != nil {
			list = append(list, []byte(path))
		}
		list = w.goneBetween(list, DirPrune{Dir: path}, nil)
	}
	for _, s := range b.Prune {
		list = w.goneBetween(list, s, b.Exists)
	}
	return list
}

// goneBetween lists the files of a directory that are gone, up to one more than one transaction drops.
// Files that came since the walk are kept.
func (w *writer) goneBetween(list [][]byte, s DirPrune, there func(string) bool) [][]byte {
	prefix := s.Dir + "/"
	if s.Dir == "." {
		prefix = ""
	}
	c := w.files.Cursor()
	for k, _ := c.Seek([]byte(max(prefix, s.After))); k != nil && len(list) <= maxRemovals; k, _ = c.Next() {
		path := string(k)
		if !strings.HasPrefix(path, prefix) || s.Until != "" && path > s.Until {
			break
		}
		if path == s.After {
			continue
		}
		if _, kept := slices.BinarySearch(s.Existing, path); kept {
			continue
		}
		if there != nil && there(path) {
			continue
		}
		list = append(list, []byte(path))
	}
	return list
}

// putFile replaces the stored packages of a file.
func (w *writer) putFile(f *File) error {
	old, known, err := w.readFile([]byte(f.Path))
	if err != nil {
		return err
	}
	if !known {
		w.totals.files++
	}
	now := fileRecord{stamp: f.Stamp, resetCount: w.totals.resetCount, fileNumber: old.fileNumber}
	if f.Unreported {
		now.resetCount, now.fileNumber = 0, 0
	}
	if len(f.Packages) > 0 && now.fileNumber == 0 {
		if now.fileNumber, err = w.fileNumber(f.Path); err != nil {
			return err
		}
	}
	for i := range f.Packages {
		id, err := w.addLocation(&f.Packages[i], now.fileNumber)
		if err != nil {
			return err
		}
		if id != 0 {
			now.packages = append(now.packages, id)
		}
	}
	slices.Sort(now.packages)
	now.packages = slices.Compact(now.packages)
	if len(now.packages) == 0 && now.fileNumber != 0 {
		if err := w.paths.Delete(numberKey(now.fileNumber)); err != nil {
			return err
		}
		now.fileNumber = 0
	}
	if err := w.removeLocations(old, now.packages); err != nil {
		return err
	}
	return w.files.Put([]byte(f.Path), now.append(nil))
}

// readFile returns the record of a file. One of a former era has no packages any more.
func (t *tx) readFile(path []byte) (fileRecord, bool, error) {
	b := t.files.Get(path)
	if b == nil {
		return fileRecord{}, false, nil
	}
	f, err := parseFileRecord(b)
	if f.resetCount != t.totals.resetCount {
		f.fileNumber, f.packages = 0, nil
	}
	return f, true, err
}

func (w *writer) fileNumber(path string) (uint64, error) {
	n := w.totals.nextFileID
	w.totals.nextFileID++
	return n, w.paths.Put(numberKey(n), []byte(path))
}

// addLocation records that a package is in a file, and returns its number; 0 when a limit is reached.
func (w *writer) addLocation(p *catalog.Package, file uint64) (uint64, error) {
	if !canBeStored(p) {
		return 0, nil
	}
	r := packageRecord{created: w.time, kind: p.Kind, name: normalizedName(p), version: p.Version, origin: originOf(p)}
	id, err := w.packageNumber(&r)
	if id == 0 || err != nil {
		return 0, err
	}
	key, value := appendNumber(numberKey(id), file), appendLocation(nil, p)
	if bytes.Equal(w.locations.Get(key), value) {
		return id, nil
	}
	if err := w.locations.Put(key, value); err != nil {
		return 0, err
	}
	return id, w.requeueMatch(id)
}

// packageNumber returns the number of a package, a new one when it has none.
func (w *writer) packageNumber(r *packageRecord) (uint64, error) {
	key := r.identity()
	if id, err := w.numberOf(key, r); id != 0 || err != nil {
		return id, err
	}
	if id, err := w.numberOf(r.formerIdentity(), r); id != 0 || err != nil {
		return id, err
	}
	if w.limitReached || w.totals.nextPackageID > maxNumber || w.totals.nextFileID > maxNumber {
		w.totals.refused++
		return 0, nil
	}
	id := w.totals.nextPackageID
	w.totals.nextPackageID++
	w.totals.packages++
	w.changes.NewIDs = append(w.changes.NewIDs, id)
	if err := w.names.Put(key, numberKey(id)); err != nil {
		return 0, err
	}
	return id, w.packages.Put(numberKey(id), r.append(nil))
}

// numberOf returns the number of the package of a record that has a key; 0 when it has none, or is of another source.
func (w *writer) numberOf(key []byte, r *packageRecord) (uint64, error) {
	b := w.names.Get(key)
	if b == nil {
		return 0, nil
	}
	id, err := numberAt(b, 0)
	if err != nil {
		return 0, err
	}
	known, err := parsePackageRecord(w.packages.Get(numberKey(id)))
	if err != nil || known.origin != r.origin {
		return 0, err
	}
	return id, nil
}

// requeueMatch queues a package for a comparison with the database: its files changed, and these
// decide under which names it is matched.
func (w *writer) requeueMatch(id uint64) error {
	return w.awaitingMatch.Put(numberKey(id), binary.AppendUvarint(nil, uint64(w.ID())))
}

// removeLocations removes a file's packages, except for some.
func (w *writer) removeLocations(f fileRecord, but []uint64) error {
	for _, id := range f.packages {
		if _, stays := slices.BinarySearch(but, id); stays {
			continue
		}
		if err := w.locations.Delete(appendNumber(numberKey(id), f.fileNumber)); err != nil {
			return err
		}
		if k, _ := w.locations.Cursor().Seek(numberKey(id)); bytes.HasPrefix(k, numberKey(id)) {
			if err := w.requeueMatch(id); err != nil {
				return err
			}
		} else if err := w.removePackage(id); err != nil {
			return err
		}
	}
	return nil
}

// removePackage deletes a package that is in no file.
func (w *writer) removePackage(id uint64) error {
	b := w.packages.Get(numberKey(id))
	if b == nil {
		return nil
	}
	r, err := parsePackageRecord(b)
	if err != nil {
		return err
	}
	w.changes.Removed = append(w.changes.Removed,
		RemovedPackage{ID: id, Kind: r.kind, Name: r.name, Version: r.version})
	w.totals.packages--
	ids, err := w.findingRecords(id)
	if err != nil {
		return err
	}
	for v := range ids {
		if err := w.findings.Delete(append(numberKey(id), v...)); err != nil {
			return err
		}
		w.totals.findings--
	}
	if err := w.awaitingMatch.Delete(numberKey(id)); err != nil {
		return err
	}
	if err := w.setOwnerDecided(id, 0); err != nil {
		return err
	}
	for _, key := range [][]byte{r.identity(), r.formerIdentity()} {
		if !bytes.Equal(w.names.Get(key), numberKey(id)) {
			continue
		}
		if err := w.names.Delete(key); err != nil {
			return err
		}
	}
	return w.packages.Delete(numberKey(id))
}

// removeFile deletes a file.
func (w *writer) removeFile(path []byte) error {
	f, known, err := w.readFile(path)
	if err != nil || !known {
		return err
	}
	if f.fileNumber != 0 {
		if err := w.paths.Delete(numberKey(f.fileNumber)); err != nil {
			return err
		}
	}
	if err := w.removeLocations(f, nil); err != nil {
		return err
	}
	w.totals.files--
	return w.files.Delete(path)
}

// FileStatus is how a file compares with its record.
type FileStatus int

// The values of Knowledge.
const (
	Unknown          FileStatus = iota
	Changed                     // its stamp differs from the one recorded
	Noted                       // its stamp is the one recorded when it was noted without being reported
	KnownBeforeReset            // its stamp is the one recorded when it was read, before a reset
	Unchanged                   // its stamp is the one recorded when it was read
)

// FileStamp is a file in its current state.
type FileStamp struct {
	Path  string
	Stamp uint64
}

// CompareFiles compares files with their records.
func (l *DB) CompareFiles(files []FileStamp) ([]FileStatus, error) {
	out := make([]FileStatus, len(files))
	err := l.view(func(t *tx) error {
		for i, s := range files {
			b := t.files.Get([]byte(s.Path))
			if b == nil {
				continue
			}
			f, err := parseFileRecord(b)
			if err != nil {
				return err
			}
			switch {
			case f.stamp != s.Stamp:
				out[i] = Changed
			case f.resetCount == 0:
				out[i] = Noted
			case f.resetCount != t.totals.resetCount:
				out[i] = KnownBeforeReset
			default:
				out[i] = Unchanged
			}
		}
		return nil
	})
	return out, err
}

// KnownBelow returns those of the paths at which or below which a file is known.
func (l *DB) KnownBelow(paths []string) ([]string, error) {
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
