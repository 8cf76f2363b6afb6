package inventorydb

import (
	"maps"
	"slices"
)

// Position is a point in the history of an inventory: what comes later has these numbers or higher ones. It has no
// meaning for the inventory that replaces a damaged one.
type Position struct {
	Package uint64 `json:"package"`
	File    uint64 `json:"file"`
}

// Position returns the current position. It reads no file.
func (l *DB) Position() Position {
	n := l.totals.Load()
	return Position{Package: n.nextPackageID, File: n.nextFileID}
}

// IDsSince returns the numbers of the packages that came since a position, ordered: those that were in no file before,
// and those that are in a file that had no packages before. There are at most as many as the limit of packages.
func (l *DB) IDsSince(p Position) ([]uint64, error) {
	var known map[uint64]struct{} // packages that came before, in files that came since
	var added []uint64
	err := l.view(func(t *tx) error {
		known, added = map[uint64]struct{}{}, nil
		files := t.paths.Cursor()
		for k, path := files.Seek(numberKey(p.File)); k != nil; k, path = files.Next() {
			f, _, err := t.readFile(path)
			if err != nil {
				return err
			}
			for _, id := range f.packages {
				if id < p.Package {
					known[id] = struct{}{}
				}
			}
		}
		packages := t.packages.Cursor()
		for k, _ := packages.Seek(numberKey(p.Package)); k != nil; k, _ = packages.Next() {
			id, err := numberAt(k, 0)
			if err != nil {
				return err
			}
			added = append(added, id)
		}
		return nil
	})
	return append(slices.Sorted(maps.Keys(known)), added...), err
}

// PackagesSince returns the packages with the given numbers as the files that came since a position describe them,
// without those that no such file has any more.
func (l *DB) PackagesSince(p Position, ids []uint64) (out []Package, err error) {
	err = l.view(func(t *tx) error {
		for _, id := range ids {
			from := p.File
			if id >= p.Package {
				from = 0 // a file of before may have it now
			}
			one, err := t.assemblePackageSince(id, from)
			if err != nil {
				return err
			}
			if one != nil {
				out = append(out, *one)
			}
		}
		return nil
	})
	return out, err
}
