package match

import (
	"errors"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/cpe"
	"github.com/buildyard/buildyard/internal/scan/match/vercmp"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// ecosystem describes how packages of one kind are matched against advisories.
type ecosystem struct {
	name   vulndb.Ecosystem
	scheme vercmp.Scheme
	// sources are in order of precedence: the first with a record of a vulnerability decides, since
	// the source nearest to a package knows its versions best.
	sources []vulndb.Source
}

// ecosystems has no entry for kinds without advisories.
var ecosystems = map[catalog.PackageType]ecosystem{
	catalog.Go:     {vulndb.Go, vercmp.SemVer, []vulndb.Source{vulndb.GoVuln, vulndb.GHSA, vulndb.OSV}},
	catalog.Rust:   {vulndb.Crates, vercmp.SemVer, []vulndb.Source{vulndb.RustSec, vulndb.GHSA, vulndb.OSV}},
	catalog.NPM:    {vulndb.NPM, vercmp.SemVer, []vulndb.Source{vulndb.GHSA, vulndb.OSV}},
	catalog.Java:   {vulndb.Maven, vercmp.Maven, []vulndb.Source{vulndb.GHSA, vulndb.OSV}},
	catalog.Python: {vulndb.PyPI, vercmp.PEP440, []vulndb.Source{vulndb.GHSA, vulndb.PyPA, vulndb.OSV}},
	catalog.Gem:    {vulndb.RubyGems, vercmp.RubyGems, []vulndb.Source{vulndb.RubySec, vulndb.GHSA, vulndb.OSV}},
	catalog.Swift:  {vulndb.SwiftURL, vercmp.SemVer, []vulndb.Source{vulndb.GHSA, vulndb.OSV}},
	catalog.Brew:   {vulndb.Homebrew, vercmp.Homebrew, []vulndb.Source{vulndb.HomebrewOSV, vulndb.OSV}},
}

// matchedByProduct are the kinds that are matched against NVD's statements about products.
var matchedByProduct = map[catalog.PackageType]bool{
	catalog.Brew: true, catalog.MacOSApp: true, catalog.Pod: true, catalog.Runtime: true, catalog.System: true,
}

// sourceRank is the position of a source in the precedence; sources outside of it come last.
func (e ecosystem) sourceRank(s vulndb.Source) int {
	if i := slices.Index(e.sources, s); i >= 0 {
		return i
	}
	return len(e.sources)
}

// versionOf parses the version of a package for comparisons.
func (e ecosystem) versionOf(p *catalog.Package) packageVersion {
	switch {
	case e.scheme == vercmp.GoTool || isGoDistribution(p):
		return newPackageVersion(vercmp.GoTool, vercmp.WithoutDistributor(cpe.UpstreamVersion(*p)))
	case e.name == vulndb.Rubies: // without the revision of a formula
		return newPackageVersion(e.scheme, cpe.UpstreamVersion(*p))
	case p.Kind == catalog.Swift && isCommit(p.Version):
		return packageVersion{scheme: e.scheme, raw: p.Version, err: errCommit}
	}
	return newPackageVersion(e.scheme, p.Version)
}

// errCommit is why a Swift package that is pinned to a branch or a commit is not evaluated.
var errCommit = errors.New("it is pinned to a commit, not to a version")

// isCommit reports whether a version is the hash of a commit of Git.
func isCommit(version string) bool {
	return (len(version) == 40 || len(version) == 64) && strings.Trim(version, "0123456789abcdef") == ""
}

// errNoRepository is why a Swift package from a package registry is not evaluated.
var errNoRepository = errors.New("it is from a package registry, and advisories name packages by their repository")

// isUnnamed reports whether no advisory can name a package: a Swift package without the address of a repository.
func isUnnamed(p *catalog.Package) bool {
	return p.Kind == catalog.Swift && !strings.Contains(p.Name, "/")
}

// isGoDistribution reports whether a package is the standard library or the tools of Go.
func isGoDistribution(p *catalog.Package) bool {
	return p.Kind == catalog.Go && (p.Name == "stdlib" || p.Name == "toolchain")
}

// noCommitSuffix is the suffix of the version that Go writes where there is none.
const noCommitSuffix = "-00010101000000-000000000000"

// notComparableReason returns why no advisory applies to a package; "" when some may.
func notComparableReason(p *catalog.Package) string {
	switch {
	case p.Replaced:
		return "its code was replaced, so that its name and version say nothing of it"
	case p.Kind == catalog.Go && (strings.HasPrefix(p.Version, "(") || strings.HasSuffix(p.Version, noCommitSuffix)):
		return "it was built from a working copy, which has no version"
	case isGoDistribution(p) && !foundInBinary(p.Locations):
		return "a go.mod says which Go is wanted, only a program says which one it was built with"
	}
	return ""
}

// foundInBinary reports whether a version of Go was found outside of a module's own file.
func foundInBinary(locations []string) bool {
	return len(locations) == 0 || slices.ContainsFunc(locations, func(l string) bool {
		return !strings.HasSuffix(l, "/go.mod") && !strings.HasSuffix(l, "/go.work")
	})
}

// mayBeForPlatform reports whether a package may be for a platform, which is JRuby in all advisories with
// a platform; "" is any. The gems for it name it in their version or directory.
func mayBeForPlatform(p *catalog.Package, platform string) bool {
	names := append([]string{p.Version}, p.Locations...)
	return slices.ContainsFunc(names, func(s string) bool {
		return strings.HasSuffix(s, "-java") || strings.Contains(s, "-java/") || strings.Contains(s, "-java.") ||
			strings.Contains(s, platform)
	})
}
