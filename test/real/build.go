package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

const (
	// maxBuilt limits the sources that packages of other formats are built of.
	maxBuilt = 40
	// maxEntries limits the entries of a changelog that such a package has.
	maxEntries = 40
	// maxCopied limits the size of a file that is copied into such a package.
	maxCopied = 256 << 10
)

// model is a source of Debian, whose history packages of other formats have.
type model struct {
	name   string
	newest history
	older  int               // place in newest of the older version
	files  map[string]string // of packages of languages: paths in the system, and the files
}

// models returns sources with vulnerabilities between their versions, at first those with packages of languages.
func (d *debian) models(ctx context.Context, c *scanner) ([]model, error) {
	report, err := c.list(ctx, d.older.dir)
	if err != nil {
		return nil, err
	}
	sources := map[string]string{} // by owner
	found := map[string]*model{}
	for i := range d.older.packages {
		p := &d.older.packages[i]
		sources[string(d.older.kind)+"/"+p.key()] = p.source
		if len(p.affected) == 0 || isKernel(p.source) || found[p.source] != nil {
			continue
		}
		h := d.histories[p.source]
		m := &model{name: p.source, newest: h[:min(len(h), maxEntries)], files: map[string]string{}}
		if m.older = m.newest.index(p.sourceVersion); m.older > 0 {
			found[p.source] = m
		}
	}
	for _, p := range report.Packages {
		if p.Metadata == nil || catalog.PackageType(p.Type).IsOS() {
			continue
		}
		m := found[sources[p.Metadata.Owner]]
		for _, l := range p.Locations {
			file := filepath.Join(d.older.dir, l.Path)
			if st, err := os.Stat(file); m != nil && err == nil && st.Mode().IsRegular() && st.Size() <= maxCopied {
				m.files[path.Clean(l.Path)] = file
			}
		}
	}
	out := make([]model, 0, len(found))
	for _, m := range found {
		out = append(out, *m)
	}
	slices.SortFunc(out, func(a, b model) int {
		return cmp.Or(-cmp.Compare(min(len(a.files), 1), min(len(b.files), 1)), strings.Compare(a.name, b.name))
	})
	if out = out[:min(len(out), maxBuilt)]; len(out) < maxBuilt/2 {
		return nil, fmt.Errorf("only %d sources have vulnerabilities between their versions", len(out))
	}
	return out, nil
}

// upstream splits a version of Debian: an epoch, "" for none, and the version of the authors.
func upstream(version string) (epoch, plain string) {
	if before, after, ok := strings.Cut(version, ":"); ok {
		epoch, version = before, after
	}
	if i := strings.LastIndexByte(version, '-'); i >= 0 {
		version = version[:i]
	}
	return epoch, version
}

// install writes the files of packages of languages below a directory.
func (m *model) install(dir string) error {
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		data, err := os.ReadFile(m.files[name])
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, name), data); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}
