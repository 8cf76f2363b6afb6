// Package gem finds installed Ruby gems by the specifications that RubyGems writes.
//
// It does not interpret Ruby: a specification is written by a program and has one assignment a
// line. Those of a project's own sources are not read.
//
// Invariant: the fields of its specification name a gem, never a guess from a file's name.
package gem

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// maxSpecBytes is the maximum size of a specification, in bytes.
const maxSpecBytes = 1 << 20

// InstalledGems reads specifications.
type InstalledGems struct{}

var _ catalog.Extractor = InstalledGems{}

// Name returns the name of the extractor in warnings.
func (InstalledGems) Name() string { return "gem/gemspec" }

// Patterns selects every specification.
func (InstalledGems) Patterns() catalog.Patterns {
	return catalog.Patterns{Extensions: []string{".gemspec"}}
}

// FileRequired accepts those in the directory of gems that RubyGems installed.
func (InstalledGems) FileRequired(p string) bool {
	dir := p[:max(strings.LastIndexByte(p, '/'), 0)]
	return (strings.HasSuffix("/"+dir, "/specifications") ||
		strings.HasSuffix("/"+dir, "/specifications/default")) && !catalog.IsTestData(dir)
}

// Patterns of a text assigned to a field, in all notations of Ruby: "x", 'x', %q{x}, "x".freeze,
// Gem::Version.new("x").
var (
	stringPattern = `(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|%[qQ](?:\{([^}]*)\}|\(([^)]*)\)|\[([^\]]*)\]|<([^>]*)>))`
	fieldLine     = regexp.MustCompile(
		`^\s*\w+\.(name|version|license|platform)\s*=\s*(?:Gem::Version\.new\s*\(?\s*)?` + stringPattern)
	licensesLine  = regexp.MustCompile(`^\s*\w+\.licenses\s*=\s*\[([^\]]*)\]`)
	stringLiteral = regexp.MustCompile(stringPattern)
	stubLine      = regexp.MustCompile(`^# stub: (\S+) (\S+) (\S+) `)
)

// Extract reads one.
func (InstalledGems) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	data, err := f.ReadAll(maxSpecBytes)
	if err != nil {
		return nil, err
	}
	p := parseGemspec(string(data))
	if p.Name == "" || p.Version == "" {
		return nil, errors.New("name or version of the gem is missing")
	}
	return []catalog.Package{p}, nil
}

func parseGemspec(spec string) catalog.Package {
	p := catalog.Package{Kind: catalog.Gem}
	platform := ""
	for line := range strings.Lines(spec) {
		if m := stubLine.FindStringSubmatch(line); m != nil && p.Name == "" {
			p.Name, p.Version, platform = m[1], m[2], m[3]
			continue
		}
		if m := licensesLine.FindStringSubmatch(line); m != nil {
			for _, one := range stringLiteral.FindAllStringSubmatch(m[1], 20) {
				p.Licenses = append(p.Licenses, literalValue(one[1:])...)
			}
			continue
		}
		m := fieldLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		v := literalValue(m[2:])
		switch {
		case len(v) == 0:
		case m[1] == "name" && p.Name == "":
			p.Name = v[0]
		case m[1] == "version" && p.Version == "":
			p.Version = v[0]
		case m[1] == "platform" && platform == "":
			platform = v[0]
		case m[1] == "license":
			p.Licenses = append(p.Licenses, v[0])
		}
	}
	p.Version = versionWithPlatform(p.Version, platform)
	return p
}

// versionWithPlatform returns a version with the platform if that is JRuby: gems for it contain Java libraries,
// which have advisories. For any other platform a gem has the same sources.
func versionWithPlatform(version, platform string) string {
	if version != "" && (platform == "jruby" || strings.Contains(platform, "java")) {
		return version + catalog.JRubySuffix
	}
	return version
}

// literalValue returns the text of a match, if it needs no interpolation.
func literalValue(groups []string) []string {
	for _, g := range groups {
		if g != "" && !strings.Contains(g, "#{") && len(g) <= 200 {
			return []string{g}
		}
	}
	return nil
}
