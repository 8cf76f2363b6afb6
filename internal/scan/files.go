package scan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// openVolumes opens the file systems of a source, and records in an inventory what is read and what cannot be. The
// closer closes them.
type openVolumes func(context.Context, *Inventory) ([]volume, io.Closer, error)

// catalogOpened opens a source, catalogs and closes it.
func (i *Inventory) catalogOpened(ctx context.Context, o Options, open openVolumes) error {
	volumes, closer, err := open(ctx, i)
	if err != nil {
		return err
	}
	defer func() { _ = closer.Close() }()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	i.open = open
	return i.catalogVolumes(ctx, volumes, o)
}

// maxOpenVolumes is how many volumes stay open for the next file: a Mac has two in one tree.
const maxOpenVolumes = 2

// Files are the files of a cataloged source, safe for concurrent use.
type Files struct {
	volumes []volume // those with the longest mount paths first
	closer  io.Closer

	mu     sync.Mutex   // guards the field below
	recent []openVolume // those that were used last, the newest first
}

// openVolume is a volume whose files are open.
type openVolume struct {
	index int
	files fs.FS
}

// OpenFiles opens the source again, to read files that have packages. For a template it must be called before
// CatalogEach returns. The caller closes the files.
func (i *Inventory) OpenFiles(ctx context.Context) (*Files, error) {
	if i.open == nil {
		return nil, errors.New("the files of the source cannot be opened again")
	}
	again := Inventory{Source: i.Source}
	volumes, closer, err := i.open(ctx, &again)
	if err != nil {
		return nil, fmt.Errorf("open the source again: %w", err)
	}
	if again.ContentID != i.ContentID {
		return nil, errors.Join(errors.New("the version was pushed again since it was scanned"), closer.Close())
	}
	assignMountPaths(volumes)
	slices.SortStableFunc(volumes, func(a, b volume) int { return -cmp.Compare(len(a.MountPath), len(b.MountPath)) })
	return &Files{volumes: volumes, closer: closer}, nil
}

// OpenFile opens the file at a location of a package, and returns its size. Reads fail once ctx has ended.
func (f *Files) OpenFile(ctx context.Context, location string) (catalog.Content, int64, io.Closer, error) {
	err := fs.ErrNotExist
	for k, v := range f.volumes { // two volumes of a Mac may make one tree
		name, ok := strings.CutPrefix(location, strings.TrimSuffix(v.MountPath, "/")+"/")
		if !ok {
			continue
		}
		files, openErr := f.openVolume(k)
		if openErr != nil {
			return nil, 0, nil, openErr
		}
		r, size, closer, openErr := catalog.OpenFile(ctx, files, name)
		if openErr == nil {
			return r, size, closer, nil
		}
		if err = openErr; !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil, 0, nil, err
}

// openVolume returns the files of a volume. What was used longest ago is freed.
func (f *Files) openVolume(k int) (fs.FS, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := slices.IndexFunc(f.recent, func(o openVolume) bool { return o.index == k })
	if at < 0 {
		files, err := f.volumes[k].open()
		if err != nil {
			return nil, err
		}
		f.recent = append(f.recent, openVolume{k, files})
		at = len(f.recent) - 1
	}
	used := f.recent[at]
	f.recent = slices.Insert(slices.Delete(f.recent, at, at+1), 0, used)
	if len(f.recent) > maxOpenVolumes {
		f.recent = slices.Delete(f.recent, maxOpenVolumes, len(f.recent))
	}
	return used.files, nil
}

// Close closes the source.
func (f *Files) Close() error { return f.closer.Close() }
