// Package golang finds Go modules: those that go.mod files require, and those that are in a module
// cache.
//
// It does not read programs; package executable does. A module that only the go.mod of a cached
// module requires need not be present, so it does not count.
//
// Invariant: a module whose code is not that of its name and version is marked as replaced.
package golang

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// Limits of a go.mod. A line takes up to six kilobytes until its packages are kept.
const (
	maxModBytes = 4 << 20
	maxModLines = 50_000
)

// ModFiles reads go.mod files.
type ModFiles struct{}

var _ catalog.Extractor = ModFiles{}

// Name returns the name of the extractor in warnings.
func (ModFiles) Name() string { return "go/go.mod" }

// Patterns selects every go.mod.
func (ModFiles) Patterns() catalog.Patterns { return catalog.Patterns{Names: []string{"go.mod"}} }

// Declares reports that packages of the file need not be installed.
func (ModFiles) Declares(string) bool { return true }

// FileRequired accepts those of projects and those at the root of a cached module.
func (ModFiles) FileRequired(p string) bool {
	if _, _, ok := cachedModule(p); ok {
		return true
	}
	return !catalog.WithinPackage(p) && !catalog.IsTestData(p)
}

// cachedModule returns the module in a module cache to which a go.mod belongs:
// pkg/mod/github.com/!burnt!sushi/toml@v1.6.0/go.mod.
func cachedModule(p string) (name, version string, ok bool) {
	dir := path.Dir(p)
	if i := strings.LastIndex("/"+p, "/pkg/mod/"); i >= 0 {
		dir = path.Dir(p[i+len("pkg/mod/"):])
	} else if host, _, _ := strings.Cut(p, "/"); !strings.Contains(host, ".") {
		return "", "", false // the cache may be the root of the tree
	}
	name, version, ok = strings.Cut(dir, "@")
	if !ok || strings.Contains(version, "/") || strings.HasPrefix(dir, "cache/") {
		return "", "", false
	}
	name, err := module.UnescapePath(name)
	if err != nil {
		return "", "", false
	}
	version, err = module.UnescapeVersion(version)
	return name, version, err == nil
}

// cachedVersion returns the version of a module in a cache outside of pkg/mod (GOMODCACHE): its go.mod is in a
// directory with the path of the module and a version. What it requires need not be present.
func cachedVersion(p string, m *modfile.Module) (version string, ok bool) {
	dir := path.Dir(p)
	at := strings.LastIndexByte(dir, '@')
	if at < 0 || m == nil || strings.Contains(dir[at:], "/") {
		return "", false
	}
	version, err := module.UnescapeVersion(dir[at+1:])
	if err != nil || version == "" || semver.Canonical(version) != strings.TrimSuffix(version, "+incompatible") {
		return "", false
	}
	name, err := module.EscapePath(m.Mod.Path)
	return version, err == nil && strings.HasSuffix("/"+dir[:at], "/"+name)
}

// Extract reads one.
func (ModFiles) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	if name, version, ok := cachedModule(f.Path); ok {
		return []catalog.Package{{Kind: catalog.Go, Name: name, Version: version}}, nil
	}
	data, err := f.ReadAll(maxModBytes)
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(data, []byte("\n")); n > maxModLines {
		return nil, fmt.Errorf("%w: it has %d lines, which is too many", catalog.ErrTooLarge, n)
	}
	mod, err := modfile.ParseLax("go.mod", data, nil)
	if err != nil {
		return nil, err
	}
	if version, ok := cachedVersion(f.Path, mod.Module); ok {
		return []catalog.Package{{Kind: catalog.Go, Name: mod.Module.Mod.Path, Version: version}}, nil
	}
	// ParseLax leaves replacements out, which a main module's own go.mod may have.
	if full, err := modfile.Parse("go.mod", data, nil); err == nil {
		mod = full
	}
	var out []catalog.Package
	for _, r := range mod.Require {
		out = append(out, PackageOf(r.Mod, replacement(mod.Replace, r.Mod)))
	}
	return out, nil
}

// replacement returns the replacement of a module: the zero value is none.
func replacement(all []*modfile.Replace, m module.Version) module.Version {
	var every module.Version
	for _, r := range all {
		switch {
		case r.Old.Path != m.Path:
		case r.Old.Version == m.Version:
			return r.New
		case r.Old.Version == "":
			every = r.New
		}
	}
	return every
}

// PackageOf converts a module to a package. A module replaced by a version of another becomes that
// one; one that is replaced by a directory keeps its name and is marked.
func PackageOf(m, by module.Version) catalog.Package {
	p := catalog.Package{Kind: catalog.Go, Name: m.Path, Version: m.Version}
	switch {
	case by.Path == "":
	case by.Version == "" || by.Version == DevelVersion || modfile.IsDirectoryPath(by.Path):
		p.Replaced = true
	default:
		p.Name, p.Version = by.Path, by.Version
	}
	p.Replaced = p.Replaced || p.Version == DevelVersion
	return p
}

// DevelVersion is the version of a module that was built from its working directory.
const DevelVersion = "(devel)"
