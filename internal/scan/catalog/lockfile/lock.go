// Package lockfile reads the lock files of package managers with the extractors of osv-scalibr,
// each of which is one small package there.
//
// It does not decide how a file is found or opened, and of osv-scalibr it uses these extractors and
// nothing else: no walk, no plug-in lists, no log.
//
// Invariant: dependencies for development alone are left out.
package lockfile

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	cpb "github.com/google/osv-scalibr/binary/proto/config_go_proto"
	"github.com/google/osv-scalibr/extractor"
	"github.com/google/osv-scalibr/extractor/filesystem"
	"github.com/google/osv-scalibr/extractor/filesystem/language/java/gradlelockfile"
	"github.com/google/osv-scalibr/extractor/filesystem/language/java/pomxml"
	"github.com/google/osv-scalibr/extractor/filesystem/language/javascript/bunlock"
	"github.com/google/osv-scalibr/extractor/filesystem/language/javascript/pnpmlock"
	"github.com/google/osv-scalibr/extractor/filesystem/language/javascript/yarnlock"
	"github.com/google/osv-scalibr/extractor/filesystem/language/python/pdmlock"
	"github.com/google/osv-scalibr/extractor/filesystem/language/python/pipfilelock"
	"github.com/google/osv-scalibr/extractor/filesystem/language/python/poetrylock"
	"github.com/google/osv-scalibr/extractor/filesystem/language/python/pylock"
	"github.com/google/osv-scalibr/extractor/filesystem/language/python/requirements"
	"github.com/google/osv-scalibr/extractor/filesystem/language/python/uvlock"
	"github.com/google/osv-scalibr/extractor/filesystem/osv"
	scalibrfs "github.com/google/osv-scalibr/fs"
	"github.com/google/osv-scalibr/log"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/tomllimit"
	"github.com/buildyard/buildyard/internal/scan/catalog/yamllimit"
)

// maxLock is the maximum size of a lock file in bytes: it is read into memory as a whole.
const maxLock = 16 << 20

const pomXML = "java/pom.xml"

// File reads one kind of lock file.
type File struct {
	name  string
	kind  catalog.PackageType
	claim catalog.Patterns
	match string // pattern of base names, for those that are selected by their extension
	keep  func(*extractor.Package) bool
	by    filesystem.Extractor
}

var _ catalog.Extractor = (*File)(nil)

func init() { log.SetLogger(discardLogger{}) }

// All lists every kind of lock file.
func All() []catalog.Extractor {
	var out []catalog.Extractor
	add := func(f File, newExtractor func(*cpb.PluginConfig) (filesystem.Extractor, error)) {
		by, err := newExtractor(&cpb.PluginConfig{})
		if err != nil {
			panic("osv-scalibr refuses its own defaults: " + err.Error())
		}
		f.by = by
		out = append(out, &f)
	}
	named := func(name string, kind catalog.PackageType, names ...string) File {
		return File{name: name, kind: kind, claim: catalog.Patterns{Names: names}}
	}
	add(named("npm/yarn.lock", catalog.NPM, "yarn.lock"), yarnlock.New)
	add(named("npm/pnpm-lock.yaml", catalog.NPM, "pnpm-lock.yaml"), pnpmlock.New)
	add(named("npm/bun.lock", catalog.NPM, "bun.lock"), bunlock.New)
	add(named("python/poetry.lock", catalog.Python, "poetry.lock"), poetrylock.New)
	add(named("python/uv.lock", catalog.Python, "uv.lock"), uvlock.New)
	add(named("python/pdm.lock", catalog.Python, "pdm.lock"), pdmlock.New)
	add(named("python/Pipfile.lock", catalog.Python, "Pipfile.lock"), pipfilelock.New)
	add(File{
		name: "python/pylock.toml", kind: catalog.Python, claim: catalog.Patterns{Extensions: []string{".toml"}},
		match: "pylock*.toml",
	}, pylock.New)
	add(File{
		name: "python/requirements.txt", kind: catalog.Python, claim: catalog.Patterns{Extensions: []string{".txt"}},
		match: "*requirements*.txt", keep: pinned,
	}, requirements.New)
	add(named("java/gradle.lockfile", catalog.Java, "gradle.lockfile"), gradlelockfile.New)
	add(named(pomXML, catalog.Java, "pom.xml"), pomxml.New)
	return out
}

// Name returns the name of the extractor in warnings.
func (l *File) Name() string { return l.name }

// Patterns selects the file's names.
func (l *File) Patterns() catalog.Patterns { return l.claim }

// FileRequired accepts those of projects.
func (l *File) FileRequired(p string) bool {
	if l.match != "" {
		if ok, err := path.Match(l.match, path.Base(p)); err != nil || !ok {
			return false
		}
	}
	return !catalog.WithinPackage(p) && !catalog.IsTestData(p)
}

// Extract reads one.
func (l *File) Extract(ctx context.Context, f *catalog.File) ([]catalog.Package, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	if f.Size() > maxLock {
		return nil, fmt.Errorf("%w: %d bytes", catalog.ErrTooLarge, f.Size())
	}
	tree, ok := f.Tree().(scalibrfs.FS)
	if !ok {
		return nil, fmt.Errorf("its file system cannot list directories")
	}
	info, err := tree.Stat(f.Path)
	if err != nil {
		return nil, err
	}
	p := &poms{FS: tree, values: map[string][]string{}}
	if l.name == pomXML {
		tree = p
	}
	if err := l.sane(f, p); err != nil {
		return nil, err
	}
	found, err := l.by.Extract(ctx, &filesystem.ScanInput{FS: tree, Path: f.Path, Info: info, Reader: r})
	if p.err != nil {
		err = p.err // the reader may continue without a file that it cannot open
	}
	var out []catalog.Package
	for _, p := range found.Packages {
		if p.Version == "" || p.Name == "" || developmentOnly(p) || l.keep != nil && !l.keep(p) ||
			!concrete(p.Version) {
			continue
		}
		out = append(out, catalog.Package{Kind: l.kind, Name: p.Name, Version: p.Version})
	}
	return out, err
}

// Limits in bytes for readers that search the whole file for each package: half a minute's worth of
// each, which is 4,500 packages of a Pipfile and 7,800 of bun.
const (
	pipfileWork = 4 << 30
	bunWork     = 12 << 30
)

// maxLines is the maximum number of lines: each may become a package, which takes about a kilobyte
// in its reader.
const maxLines = 500_000

// sane refuses a file that would crash its reader, keep it busy for hours, or make it silently stop
// before the end.
func (l *File) sane(f *catalog.File, p *poms) error {
	var check func([]byte) error
	switch l.name {
	case "python/poetry.lock", "python/uv.lock", "python/pdm.lock", "python/pylock.toml":
		check = tomllimit.Check
	case "npm/pnpm-lock.yaml":
		check = yamllimit.Check
	case "python/Pipfile.lock":
		check = func(data []byte) error { return quick(data, "{", pipfileWork) }
	case "npm/bun.lock":
		check = func(data []byte) error { return quick(data, "[", bunWork) }
	case "npm/yarn.lock":
		check = lines
	case pomXML:
		check = p.add
	default:
		check = func([]byte) error { return nil }
	}
	data, err := f.ReadAll(maxLock)
	if n := bytes.Count(data, []byte("\n")); err == nil && n > maxLines {
		err = fmt.Errorf("%w: it has %d lines", catalog.ErrTooLarge, n)
	}
	if err == nil {
		err = check(data)
	}
	if err == nil {
		_, err = f.Open() // from the beginning again
	}
	return err
}

// quick refuses a file with very many packages, each of which has a bracket.
func quick(data []byte, bracket string, work int64) error {
	if n := bytes.Count(data, []byte(bracket)); int64(n)*int64(len(data)) > work {
		return fmt.Errorf("%w: %d packages in %d bytes", catalog.ErrTooLarge, n, len(data))
	}
	return nil
}

// lines refuses a file with a line that its reader mistakes for the end.
func lines(data []byte) error {
	for line := range bytes.Lines(data) {
		if len(line) >= bufio.MaxScanTokenSize {
			return fmt.Errorf("%w: it has a line of %d bytes", catalog.ErrTooLarge, len(line))
		}
	}
	return nil
}

// developmentOnly reports whether all dependency groups that name a package are for development.
func developmentOnly(p *extractor.Package) bool {
	g, ok := p.Metadata.(osv.DepGroups)
	if !ok || len(g.DepGroups()) == 0 {
		return false
	}
	return !slices.ContainsFunc(g.DepGroups(), func(name string) bool {
		switch strings.ToLower(name) {
		case "dev", "develop", "development", "test", "tests", "testing", "lint", "docs":
			return false
		}
		return !strings.HasPrefix(strings.ToLower(name), "test")
	})
}

// pinned reports whether a requirement names one version.
func pinned(p *extractor.Package) bool {
	m, ok := p.Metadata.(*requirements.Metadata)
	return ok && strings.HasPrefix(m.VersionComparator, "==")
}

// concrete reports whether a text is a version, without ranges and placeholders.
func concrete(v string) bool {
	return len(v) <= 256 && !strings.ContainsAny(v, " ,*${}[]()<>^~|\t")
}

// discardLogger discards all messages: errors are returned too.
type discardLogger struct{}

func (discardLogger) Errorf(string, ...any) {}
func (discardLogger) Error(...any)          {}
func (discardLogger) Warnf(string, ...any)  {}
func (discardLogger) Warn(...any)           {}
func (discardLogger) Infof(string, ...any)  {}
func (discardLogger) Info(...any)           {}
func (discardLogger) Debugf(string, ...any) {}
func (discardLogger) Debug(...any)          {}
