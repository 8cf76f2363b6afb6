package gem

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// Limits of a Gemfile.lock. A line takes about two kilobytes until its packages are kept.
const (
	maxLockBytes = 8 << 20
	maxLockLines = 150_000
)

// LockFiles reads what Bundler locks.
type LockFiles struct{}

var _ catalog.Extractor = LockFiles{}

// Name returns the name of the extractor in warnings.
func (LockFiles) Name() string { return "gem/Gemfile.lock" }

// Patterns selects both of its names.
func (LockFiles) Patterns() catalog.Patterns {
	return catalog.Patterns{Names: []string{"Gemfile.lock", "gems.locked"}}
}

// Declares reports that packages of the file need not be installed.
func (LockFiles) Declares(string) bool { return true }

// FileRequired accepts those of projects.
func (LockFiles) FileRequired(p string) bool {
	return !catalog.WithinPackage(p) && !catalog.IsTestData(p)
}

// gemLine matches a gem in a section; its indent distinguishes it from dependencies: "    rack
// (3.0.0)". The platform follows the first hyphen, which a version has not.
var gemLine = regexp.MustCompile(`^ {4}([^\s(]+) \(([^)\s]+)\)$`)

// Extract reads one.
func (LockFiles) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	data, err := f.ReadAll(maxLockBytes)
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(data, []byte("\n")); n > maxLockLines {
		return nil, fmt.Errorf("%w: it has %d lines, which is too many", catalog.ErrTooLarge, n)
	}
	var out []catalog.Package
	counts := false // the gems of PATH are the project itself
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n")
		if line != "" && line[0] != ' ' {
			counts = line == "GEM" || line == "GIT" || line == "PLUGIN SOURCE"
			continue
		}
		if m := gemLine.FindStringSubmatch(line); counts && m != nil {
			version, platform, _ := strings.Cut(m[2], "-")
			out = append(out,
				catalog.Package{Kind: catalog.Gem, Name: m[1], Version: versionWithPlatform(version, platform)})
		}
	}
	return out, nil
}
