package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// TrashName is the name in trash_dir of an entry that was deleted at an epoch nanosecond.
func TrashName(stamp int64, name string) string { return fmt.Sprintf("%d-%s", stamp, name) }

// TrashEntry is an entry of trash_dir.
type TrashEntry struct {
	Stamp        int64  // epoch nanoseconds of its deletion
	OriginalName string // its name before
}

// Path is the entry's path relative to the storage.
func (t TrashEntry) Path() string { return path.Join(TrashDir, TrashName(t.Stamp, t.OriginalName)) }

// TrashEntries lists entries that were deleted and not yet purged.
func (d *Dir) TrashEntries() ([]TrashEntry, error) {
	entries, err := d.ReadDir(TrashDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a storage that was never opened for writing
	}
	if err != nil {
		return nil, fmt.Errorf("read trash: %w", err)
	}
	var out []TrashEntry
	for _, e := range entries {
		stamp, name, ok := strings.Cut(e.Name(), "-")
		if when, err := strconv.ParseInt(stamp, 10, 64); ok && err == nil {
			out = append(out, TrashEntry{Stamp: when, OriginalName: name})
		}
	}
	return out, nil
}

// SizeOnDisk is the total size in bytes of a file, or of the files below a directory; a missing one has 0.
func (d *Dir) SizeOnDisk(name string) int64 {
	var sum int64
	_ = fs.WalkDir(d.root.FS(), name, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // removed since then, or not readable: it is an estimate
		}
		if st, err := e.Info(); err == nil && st.Mode().IsRegular() {
			sum += st.Size()
		}
		return nil
	})
	return sum
}

// PurgeTrash removes entries that were deleted before an epoch nanosecond and whose name matches want. It
// returns their number.
func (d *Dir) PurgeTrash(before int64, want func(name string) bool) (int, error) {
	if d.remote != nil {
		if err := d.remote.PurgeTrash(before); err != nil {
			return 0, err
		}
	}
	entries, err := d.TrashEntries()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, e := range entries {
		if e.Stamp >= before || !want(e.OriginalName) {
			continue
		}
		if err := d.RemoveAll("purge", e.Path()); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
