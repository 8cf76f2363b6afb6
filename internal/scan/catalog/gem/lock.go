package gem

import (
	"context"
	"regexp"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// maxLock is the maximum size of a Gemfile.lock, in bytes.
const maxLock = 8 << 20

// Lock reads what Bundler locks.
type Lock struct{}

var _ catalog.Extractor = Lock{}

// Name returns the name of the extractor in warnings.
func (Lock) Name() string { return "gem/Gemfile.lock" }

// Patterns selects both of its names.
func (Lock) Patterns() catalog.Patterns {
	return catalog.Patterns{Names: []string{"Gemfile.lock", "gems.locked"}}
}

// FileRequired accepts those of projects.
func (Lock) FileRequired(p string) bool { return !catalog.WithinPackage(p) && !catalog.IsTestData(p) }

// spec matches a gem in a section; its indent distinguishes it from dependencies: "    rack
// (3.0.0)". The platform follows the first hyphen, which a version has not.
var spec = regexp.MustCompile(`^ {4}([^\s(]+) \(([^)\s]+)\)$`)

// Extract reads one.
func (Lock) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	data, err := f.ReadAll(maxLock)
	if err != nil {
		return nil, err
	}
	var out []catalog.Package
	counts := false // the gems of PATH are the project itself
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n")
		if line != "" && line[0] != ' ' {
			counts = line == "GEM" || line == "GIT" || line == "PLUGIN SOURCE"
			continue
		}
		if m := spec.FindStringSubmatch(line); counts && m != nil {
			version, platform, _ := strings.Cut(m[2], "-")
			out = append(out, catalog.Package{Kind: catalog.Gem, Name: m[1], Version: built(version, platform)})
		}
	}
	return out, nil
}
