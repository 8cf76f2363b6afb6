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

// Files are the files of a cataloged source, safe for concurrent use.
type Files struct {
	volumes []volume // those with the longest mount paths first
	closer  io.Closer
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
	return &Files{volumes, closer}, nil
}

// OpenFile opens the file at a location of a package, and returns its size. Reads fail once ctx has ended.
func (f *Files) OpenFile(ctx context.Context, location string) (catalog.Content, int64, io.Closer, error) {
	err := fs.ErrNotExist
	for _, v := range f.volumes { // two volumes of a Mac may make one tree
		name, ok := strings.CutPrefix(location, strings.TrimSuffix(v.MountPath, "/")+"/")
		if !ok {
			continue
		}
		r, size, closer, openErr := catalog.OpenFile(ctx, v.fs, name)
		if openErr == nil {
			return r, size, closer, nil
		}
		if err = openErr; !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil, 0, nil, err
}

// Close closes the source.
func (f *Files) Close() error { return f.closer.Close() }
