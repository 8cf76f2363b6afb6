// Package apk finds the packages that apk installed, in the database of Alpine Linux and its relatives,
// and the packages that own files.
//
// It reads no repository index and verifies no signature.
//
// Invariant: every package is a paragraph of the database with a name and a version.
package apk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/osrelease"
)

const (
	maxDatabaseBytes = 128 << 20
	maxPackages      = 100_000
)

// databaseFiles are the paths of the database: since apk 3 it may be below usr.
var databaseFiles = []string{"lib/apk/db/installed", "usr/lib/apk/db/installed"}

// Packages reads the database.
type Packages struct{}

var (
	_ catalog.Extractor   = Packages{}
	_ catalog.OwnerFinder = Packages{}

	_ catalog.CompanionReader = Packages{}
)

// Name returns the name of the extractor in warnings.
func (Packages) Name() string { return "apk/installed" }

// Patterns selects the database.
func (Packages) Patterns() catalog.Patterns { return catalog.Patterns{Names: []string{"installed"}} }

// FileRequired accepts those in the directory of apk.
func (Packages) FileRequired(p string) bool {
	_, ok := Packages{}.Root(p)
	return ok
}

// ReadsCompanion accepts the file with the release.
func (Packages) ReadsCompanion(p string) bool { return osrelease.IsFile(p) }

// Root returns the root of the system that a database belongs to.
func (Packages) Root(p string) (root string, ok bool) {
	if root, ok = osrelease.Root(p, databaseFiles[1]); ok {
		return root, true
	}
	return osrelease.Root(p, databaseFiles[0])
}

// Kind returns the kind of the packages.
func (Packages) Kind() catalog.PackageType { return catalog.APK }

// Extract reads one.
func (Packages) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	data, err := f.ReadAll(maxDatabaseBytes)
	if err != nil {
		return nil, err
	}
	list, err := parseDatabase(data, nil)
	if len(list) == 0 {
		return nil, err
	}
	root, _ := Packages{}.Root(f.Path)
	distribution := osrelease.Distribution(f.Tree(), root)
	for i := range list {
		list[i].Distribution = distribution
	}
	return list, err
}

// Owners reads the files of each package from the database.
func (Packages) Owners(q *catalog.OwnerSearch) error {
	for _, name := range q.Databases {
		data, err := q.ReadFile(name, maxDatabaseBytes)
		if err != nil {
			return err
		}
		var buf []byte
		owner, name, version := "", "", ""
		_, _ = parseDatabase(data, func(p *catalog.Package, dir, base []byte) { // Extract reported its error
			if p.Name != name || p.Version != version {
				owner, name, version = p.OwnerName(), p.Name, p.Version
			}
			if buf = append(buf[:0], dir...); len(dir) > 0 {
				buf = append(buf, '/')
			}
			buf = append(buf, base...)
			q.Own(buf, owner)
		})
	}
	return nil
}

// errNotDatabase reports a file without any package, which is not empty either.
var errNotDatabase = errors.New("not a package database of apk: it names no package")

// parseDatabase reads the paragraphs of a database (apk-tools: doc/apk-v2.5.scd): lines of a letter, a colon and
// a value, and a blank line after each package. Files follow their directory, both after the fields of the
// package; onFile is called for each, and may be nil.
func parseDatabase(data []byte, onFile func(p *catalog.Package, dir, base []byte)) ([]catalog.Package, error) {
	var out []catalog.Package
	p := catalog.Package{Kind: catalog.APK}
	var dir []byte
	incomplete, fields := 0, 0
	isBlank := len(bytes.TrimSpace(data)) == 0
	end := func() {
		switch {
		case p.Name != "" && p.Version != "":
			p.SourceVersion = p.Version
			if p.Source == "" {
				p.Source = p.Name
			}
			out = append(out, p)
		case fields > 0:
			incomplete++
		}
		p, dir, fields = catalog.Package{Kind: catalog.APK}, nil, 0
	}
	for len(data) > 0 && len(out) < maxPackages {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		if len(line) == 0 {
			end()
			continue
		}
		if len(line) < 2 || line[1] != ':' {
			continue
		}
		fields++
		switch value := line[2:]; line[0] {
		case 'P':
			p.Name = string(value)
		case 'V':
			p.Version = string(value)
		case 'A':
			p.Arch = string(value)
		case 'o':
			p.Source = string(value)
		case 'L':
			if license := strings.TrimSpace(string(value)); license != "" && onFile == nil {
				p.Licenses = []string{license}
			}
		case 'F':
			dir = value
		case 'R':
			if onFile != nil {
				onFile(&p, dir, value)
			}
		}
	}
	end()
	switch {
	case len(data) > 0:
		return out, fmt.Errorf("%w: the database has more than %d packages", catalog.ErrTooLarge, maxPackages)
	case incomplete > 0:
		return out, fmt.Errorf("%d packages of the database lack a name or a version", incomplete)
	case len(out) == 0 && !isBlank:
		return out, errNotDatabase
	}
	return out, nil
}
