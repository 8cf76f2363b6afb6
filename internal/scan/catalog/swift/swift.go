// Package swift finds the packages that Swift Package Manager resolved: the Package.resolved of packages, and those
// within projects and workspaces of Xcode.
//
// It does not read Package.swift, which is a program, and nothing that is checked out: those are the sources of the
// packages that a Package.resolved names.
//
// Invariant: a package has the name that OSV's advisories have for its repository, and no part of an address that may
// be a password.
package swift

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"unicode"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/jsonlimit"
)

// Limits of a file. Every package has two objects. The largest projects have some hundred packages.
const (
	maxFileBytes = 8 << 20
	maxObjects   = 100_000
	maxElements  = 1_000_000
)

// ResolvedFiles reads Package.resolved files of versions 1 to 3.
type ResolvedFiles struct{}

var _ catalog.Extractor = ResolvedFiles{}

// Name returns the name of the extractor in warnings.
func (ResolvedFiles) Name() string { return "swift/Package.resolved" }

// Patterns selects the file's name.
func (ResolvedFiles) Patterns() catalog.Patterns {
	return catalog.Patterns{Names: []string{"Package.resolved"}}
}

// Declares reports that packages of the file need not be installed.
func (ResolvedFiles) Declares(string) bool { return true }

// checkoutDirs are where Swift Package Manager, Xcode and Carthage put the sources of packages. A Package.resolved
// there is that of the package's authors, and is not used.
var checkoutDirs = []string{"/.build/checkouts/", "/SourcePackages/checkouts/", "/Carthage/Checkouts/"}

// FileRequired accepts those of projects.
func (ResolvedFiles) FileRequired(p string) bool {
	for _, dir := range checkoutDirs {
		if strings.Contains("/"+p, dir) {
			return false
		}
	}
	return !catalog.WithinPackage(p) && !catalog.IsTestData(p)
}

// resolvedFile is a Package.resolved. Version 1 has its pins in an object; version 3 is as version 2 with a hash.
type resolvedFile struct {
	Pins   *[]pin `json:"pins"`
	Object struct {
		Pins *[]pin `json:"pins"`
	} `json:"object"`
}

// pin is a resolved package. The first two names are those of version 1.
type pin struct {
	Package       string `json:"package"`
	RepositoryURL string `json:"repositoryURL"`
	Identity      string `json:"identity"`
	Kind          string `json:"kind"`
	Location      string `json:"location"`
	State         struct {
		Version  string `json:"version"`
		Revision string `json:"revision"` // of Git
	} `json:"state"`
}

// registryKind is the kind of a package from a package registry, whose identity is "scope.name".
const registryKind = "registry"

// Extract reads one.
func (ResolvedFiles) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	data, err := f.ReadAll(maxFileBytes)
	if err != nil {
		return nil, err
	}
	return parseResolved(data)
}

func parseResolved(data []byte) ([]catalog.Package, error) {
	if err := jsonlimit.CheckCounts(data, maxObjects, maxElements); err != nil {
		return nil, err
	}
	var file resolvedFile
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	pins := cmp.Or(file.Pins, file.Object.Pins)
	if pins == nil {
		return nil, errors.New("it has no list of pins")
	}
	var out []catalog.Package
	for _, p := range *pins {
		if found := p.toPackage(); found.Name != "" {
			out = append(out, found)
		}
	}
	return out, nil
}

// toPackage returns the package of a pin. One that is pinned to a branch or a commit has the commit as its version.
func (p *pin) toPackage() catalog.Package {
	found := catalog.Package{Kind: catalog.Swift, Version: cmp.Or(p.State.Version, p.State.Revision)}
	name, ok := RepositoryName(cmp.Or(p.Location, p.RepositoryURL))
	if ok {
		found.Name = name
		return found
	}
	found.Name = cmp.Or(p.Identity, p.Package)
	found.Replaced = p.Kind != registryKind // a directory, whose content may be anything
	return found
}

// RepositoryName returns the name that advisories have for a repository: the host and path of its address, without
// scheme, user, port and ".git". It reports false for a directory.
func RepositoryName(address string) (string, bool) {
	scheme, rest, hasScheme := strings.Cut(address, "://")
	separator := "/"
	if !hasScheme { // git@github.com:owner/name.git
		rest, separator = address, ":"
	}
	authority, path, ok := strings.Cut(rest, separator)
	if !ok || scheme == "file" || strings.ContainsAny(authority, `/\`) {
		return "", false
	}
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	host, _, _ := strings.Cut(authority, ":")
	path = strings.Trim(path, "/")
	path = strings.TrimRight(strings.TrimSuffix(path, ".git"), "/")
	if host == "" || path == "" || strings.ContainsFunc(host+path, isInvalidInName) {
		return "", false
	}
	return strings.ToLower(host) + "/" + path, true
}

// isInvalidInName reports whether the host and path of a repository cannot have a character.
func isInvalidInName(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune(`\?#@<>"`, r)
}
