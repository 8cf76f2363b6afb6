// Package extractors lists the extractors of every kind of package.
//
// It reads no file: each extractor is in a separate package.
//
// Invariant: the list is the same for every scan, so that all scans find the same packages.
package extractors

import (
	"slices"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/apk"
	"github.com/buildyard/buildyard/internal/scan/catalog/brew"
	"github.com/buildyard/buildyard/internal/scan/catalog/cocoapods"
	"github.com/buildyard/buildyard/internal/scan/catalog/dpkg"
	"github.com/buildyard/buildyard/internal/scan/catalog/executable"
	"github.com/buildyard/buildyard/internal/scan/catalog/gem"
	"github.com/buildyard/buildyard/internal/scan/catalog/golang"
	"github.com/buildyard/buildyard/internal/scan/catalog/java"
	"github.com/buildyard/buildyard/internal/scan/catalog/lockfile"
	"github.com/buildyard/buildyard/internal/scan/catalog/macos"
	"github.com/buildyard/buildyard/internal/scan/catalog/npm"
	"github.com/buildyard/buildyard/internal/scan/catalog/python"
	"github.com/buildyard/buildyard/internal/scan/catalog/rpm"
	"github.com/buildyard/buildyard/internal/scan/catalog/runtimes"
	"github.com/buildyard/buildyard/internal/scan/catalog/rust"
	"github.com/buildyard/buildyard/internal/scan/catalog/swift"
)

// All returns the extractors of all kinds.
func All() []catalog.Extractor {
	return slices.Concat([]catalog.Extractor{
		gem.InstalledGems{},
		gem.LockFiles{},
		python.InstalledPackages{},
		npm.InstalledPackages{},
		npm.AsarArchives{},
		npm.LockFiles{},
		java.Archives{},
		golang.ModFiles{},
		executable.Programs{},
		rust.LockFiles{},
		brew.Formulae{},
		brew.Casks{},
		macos.Applications{},
		macos.Receipts{},
		cocoapods.LockFiles{},
		runtimes.Installations{},
		swift.ResolvedFiles{},
		dpkg.Packages{},
		rpm.Packages{},
		apk.Packages{},
	}, lockfile.All())
}

// System returns the extractors that run only on request: of macOS itself.
func System() []catalog.Extractor { return []catalog.Extractor{macos.System{}} }
