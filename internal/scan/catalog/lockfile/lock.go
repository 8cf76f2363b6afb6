// Package lockfile reads the lock files of package managers with the extractors of osv-scalibr,
// each of which is one small package there.
//
// It does not decide how a file is found or opened, and of osv-scalibr it uses these extractors and
// nothing else: no walk, no plug-in lists, no log.
//
// Invariant: dependencies for development alone are marked, where a lock file says so.
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

// maxLockBytes is the maximum size of a lock file in bytes: it is read into memory as a whole.
const maxLockBytes = 16 << 20

const (
	pomXML       = "java/pom.xml"
	pnpmLockYAML = "npm/pnpm-lock.yaml"
	uvLockTOML   = "python/uv.lock"
	pdmLockTOML  = "python/pdm.lock"
	poetryLock   = "python/poetry.lock"
)

// Extractor reads one kind of lock file.
type Extractor struct {
	name        string
	kind        catalog.PackageType
	patterns    catalog.Patterns
	namePattern string // pattern of base names, for those that are selected by their extension
	keepPackage func(*extractor.Package) bool
	reader      filesystem.Extractor
}

var _ catalog.Extractor = (*Extractor)(nil)

func init() { log.SetLogger(discardLogger{}) }

// All lists every kind of lock file.
func All() []catalog.Extractor {
	var out []catalog.Extractor
	add := func(f Extractor, newExtractor func(*cpb.PluginConfig) (filesystem.Extractor, error)) {
		by, err := newExtractor(&cpb.PluginConfig{})
		if err != nil {
			panic("osv-scalibr refuses its own defaults: " + err.Error())
		}
		f.reader = by
		out = append(out, &f)
	}
	named := func(name string, kind catalog.PackageType, names ...string) Extractor {
		return Extractor{name: name, kind: kind, patterns: catalog.Patterns{Names: names}}
	}
	add(named("npm/yarn.lock", catalog.NPM, "yarn.lock"), yarnlock.New)
	add(named(pnpmLockYAML, catalog.NPM, "pnpm-lock.yaml"), pnpmlock.New)
	add(named("npm/bun.lock", catalog.NPM, "bun.lock"), bunlock.New)
	add(named(poetryLock, catalog.Python, "poetry.lock"), poetrylock.New)
	add(named(uvLockTOML, catalog.Python, "uv.lock"), uvlock.New)
	add(named(pdmLockTOML, catalog.Python, "pdm.lock"), pdmlock.New)
	add(named("python/Pipfile.lock", catalog.Python, "Pipfile.lock"), pipfilelock.New)
	add(Extractor{
		name: "python/pylock.toml", kind: catalog.Python, patterns: catalog.Patterns{Extensions: []string{".toml"}},
		namePattern: "pylock*.toml",
	}, pylock.New)
	add(Extractor{
		name: "python/requirements.txt", kind: catalog.Python, patterns: catalog.Patterns{Extensions: []string{".txt"}},
		namePattern: "*requirements*.txt", keepPackage: isPinned,
	}, requirements.New)
	add(named("java/gradle.lockfile", catalog.Java, "gradle.lockfile"), gradlelockfile.New)
	add(named(pomXML, catalog.Java, "pom.xml"), pomxml.New)
	return out
}

// Name returns the name of the extractor in warnings.
func (l *Extractor) Name() string { return l.name }

// Patterns selects the file's names.
func (l *Extractor) Patterns() catalog.Patterns { return l.patterns }

// Declares reports that packages of the file need not be installed.
func (l *Extractor) Declares(string) bool { return true }

// FileRequired accepts those of projects.
func (l *Extractor) FileRequired(p string) bool {
	if l.namePattern != "" {
		if ok, err := path.Match(l.namePattern, path.Base(p)); err != nil || !ok {
			return false
		}
	}
	return !catalog.WithinPackage(p) && !catalog.IsTestData(p)
}

// Extract reads one.
func (l *Extractor) Extract(ctx context.Context, f *catalog.File) ([]catalog.Package, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	if f.Size() > maxLockBytes {
		return nil, fmt.Errorf("%w: %d bytes", catalog.ErrTooLarge, f.Size())
	}
	tree, ok := f.Tree().(scalibrfs.FS)
	if !ok {
		return nil, fmt.Errorf("the file system cannot list directories")
	}
	info, err := tree.Stat(f.Path)
	if err != nil {
		return nil, err
	}
	p := &pomTree{FS: tree, propertyValues: map[string][]string{}}
	if l.name == pomXML {
		tree = p
	}
	data, err := l.checkLimits(f, p)
	if err != nil {
		return nil, err
	}
	isDevelopment := l.developmentOf(data)
	found, err := l.reader.Extract(ctx, &filesystem.ScanInput{FS: tree, Path: f.Path, Info: info, Reader: r})
	if p.err != nil {
		err = p.err // the reader may continue without a file that it cannot open
	}
	var out []catalog.Package
	for _, p := range found.Packages {
		if p.Version == "" || p.Name == "" || l.keepPackage != nil && !l.keepPackage(p) ||
			!isVersion(p.Version) {
			continue
		}
		out = append(out, catalog.Package{
			Kind: l.kind, Name: p.Name, Version: p.Version,
			Development: isDevelopment(p),
		})
	}
	return out, err
}

// Limits in bytes for readers that search the whole file for each package: half a minute's worth of
// each, which is 4,500 packages of a Pipfile and 7,800 of bun.
const (
	maxPipfileWork = 4 << 30
	maxBunWork     = 12 << 30
)

// maxLines is the maximum number of lines: each may become a package, which takes about a kilobyte
// in its reader.
const maxLines = 500_000

// checkLimits returns the content of a file. It refuses one that would crash its reader, keep it busy for
// hours, or make it silently stop before the end.
func (l *Extractor) checkLimits(f *catalog.File, p *pomTree) ([]byte, error) {
	var check func([]byte) error
	switch l.name {
	case poetryLock, uvLockTOML, pdmLockTOML, "python/pylock.toml":
		check = tomllimit.Check
	case pnpmLockYAML:
		check = yamllimit.Check
	case "python/Pipfile.lock":
		check = func(data []byte) error { return checkPackageCount(data, "{", maxPipfileWork) }
	case "npm/bun.lock":
		check = func(data []byte) error { return checkPackageCount(data, "[", maxBunWork) }
	case "npm/yarn.lock":
		check = checkLines
	case pomXML:
		check = p.checkFile
	default:
		check = func([]byte) error { return nil }
	}
	data, err := f.ReadAll(maxLockBytes)
	if n := bytes.Count(data, []byte("\n")); err == nil && n > maxLines {
		err = fmt.Errorf("%w: it has %d lines, which is too many", catalog.ErrTooLarge, n)
	}
	if err == nil {
		err = check(data)
	}
	if err == nil {
		_, err = f.Open() // from the beginning again
	}
	return data, err
}

// checkPackageCount refuses a file with very many packages, each of which has a bracket.
func checkPackageCount(data []byte, bracket string, work int64) error {
	if n := bytes.Count(data, []byte(bracket)); int64(n)*int64(len(data)) > work {
		return fmt.Errorf("%w: it has %d packages in %d bytes", catalog.ErrTooLarge, n, len(data))
	}
	return nil
}

// checkLines refuses a file with a line that its reader mistakes for the end.
func checkLines(data []byte) error {
	for line := range bytes.Lines(data) {
		if len(line) >= bufio.MaxScanTokenSize {
			return fmt.Errorf("%w: it has a line of %d bytes, which is too long", catalog.ErrTooLarge, len(line))
		}
	}
	return nil
}

// developmentOf returns which packages of a file are for development alone.
func (l *Extractor) developmentOf(data []byte) func(*extractor.Package) bool {
	switch l.name {
	case pnpmLockYAML:
		if used := usedByPNPM(data); used != nil {
			return func(p *extractor.Package) bool { return !used[p.Name+"@"+p.Version] }
		}
	case uvLockTOML:
		only := developmentOfUV(data)
		return func(p *extractor.Package) bool { return only[nameAndVersion(p.Name, p.Version)] }
	case poetryLock:
		only := developmentOfPoetry(data)
		return func(p *extractor.Package) bool {
			return only[nameAndVersion(p.Name, p.Version)] || isDevelopmentOnly(p)
		}
	case pdmLockTOML:
		only := developmentOfPDM(data)
		return func(p *extractor.Package) bool { return only[nameAndVersion(p.Name, p.Version)] }
	}
	return isDevelopmentOnly
}

// isDevelopmentOnly reports whether all dependency groups that name a package are for development.
func isDevelopmentOnly(p *extractor.Package) bool {
	g, ok := p.Metadata.(osv.DepGroups)
	if !ok || len(g.DepGroups()) == 0 {
		return false
	}
	return !slices.ContainsFunc(g.DepGroups(), func(name string) bool { return !isDevelopmentGroup(name) })
}

// isPinned reports whether a requirement names one version.
func isPinned(p *extractor.Package) bool {
	m, ok := p.Metadata.(*requirements.Metadata)
	return ok && strings.HasPrefix(m.VersionComparator, "==")
}

// isVersion reports whether a text is a version, without ranges and placeholders.
func isVersion(v string) bool {
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
