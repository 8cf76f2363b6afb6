package layout

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// TrashName is the name that something deleted at an epoch nanosecond has in trash_dir.
func TrashName(stamp int64, name string) string { return fmt.Sprintf("%d-%s", stamp, name) }

// Trashed is an entry of trash_dir.
type Trashed struct {
	Stamp int64  // epoch nanoseconds of its deletion
	Name  string // its name before
}

// Path is the entry's place below the storage.
func (t Trashed) Path() string { return path.Join(TrashDir, TrashName(t.Stamp, t.Name)) }

// Trash lists what was deleted and not yet purged.
func (d *Dir) Trash() ([]Trashed, error) {
	entries, err := d.Names(TrashDir)
	if err != nil {
		return nil, fmt.Errorf("read trash: %w", err)
	}
	var out []Trashed
	for _, e := range entries {
		stamp, name, ok := strings.Cut(e.Name(), "-")
		if when, err := strconv.ParseInt(stamp, 10, 64); ok && err == nil {
			out = append(out, Trashed{Stamp: when, Name: name})
		}
	}
	return out, nil
}

// PurgeTrash removes entries that were deleted before an epoch nanosecond and whose name is wanted. It says how many.
func (d *Dir) PurgeTrash(before int64, want func(name string) bool) (int, error) {
	entries, err := d.Trash()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, e := range entries {
		if e.Stamp >= before || !want(e.Name) {
			continue
		}
		if err := d.RemoveAll("purge", e.Path()); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
