// Package rust finds crates: those that a Cargo.lock names and those whose sources are in cargo's
// registry.
//
// It does not read programs; package executable does.
//
// Invariant: the crates of a workspace itself, which come from no source, never count.
package rust

import (
	"context"
	"path"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/tomllimit"
)

// maxLockBytes is the maximum size of a Cargo.lock, in bytes.
const maxLockBytes = 16 << 20

// LockFiles reads Cargo.lock files.
type LockFiles struct{}

var _ catalog.Extractor = LockFiles{}

// Name returns the name of the extractor in warnings.
func (LockFiles) Name() string { return "rust/Cargo.lock" }

// Patterns selects every Cargo.lock, and for every Cargo.toml.
func (LockFiles) Patterns() catalog.Patterns {
	return catalog.Patterns{Names: []string{"Cargo.lock", "Cargo.toml"}}
}

// Declares reports that packages of a lock file need not be installed. A Cargo.toml describes the package
// that it is in.
func (LockFiles) Declares(p string) bool { return path.Base(p) == "Cargo.lock" }

// FileRequired accepts the locks of projects, and the manifests at the root of a downloaded crate.
func (LockFiles) FileRequired(p string) bool {
	if path.Base(p) == "Cargo.toml" {
		_, _, ok := downloadedCrate(p)
		return ok
	}
	return !catalog.WithinPackage(p) && !catalog.IsTestData(p)
}

// downloadedCrate returns the crate to whose directory a manifest belongs:
// registry/src/index.x-6f17d22bba15001f/serde_json-1.0.1/Cargo.toml.
func downloadedCrate(p string) (name, version string, ok bool) {
	i := strings.LastIndex("/"+p, "/registry/src/")
	if i < 0 {
		return "", "", false
	}
	parts := strings.Split(p[i+len("registry/src/"):], "/")
	if len(parts) != 3 {
		return "", "", false
	}
	// A version begins after the first dash before a digit and a dot.
	for at, c := range parts[1] {
		rest := parts[1][at+1:]
		if dot := strings.IndexByte(rest, '.'); c == '-' && dot > 0 && strings.Trim(rest[:dot], "0123456789") == "" {
			return parts[1][:at], rest, at > 0
		}
	}
	return "", "", false
}

// lockFile has the relevant parts of a Cargo.lock.
type lockFile struct {
	Package []struct {
		Name    string
		Version string
		Source  string
	}
}

// Extract reads one.
func (LockFiles) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	if name, version, ok := downloadedCrate(f.Path); ok {
		return []catalog.Package{{Kind: catalog.Rust, Name: name, Version: version}}, nil
	}
	data, err := f.ReadAll(maxLockBytes)
	if err != nil {
		return nil, err
	}
	if err := tomllimit.Check(data); err != nil {
		return nil, err
	}
	var l lockFile
	if err := toml.Unmarshal(data, &l); err != nil {
		return nil, err
	}
	var out []catalog.Package
	for _, p := range l.Package {
		if p.Source != "" {
			out = append(out, catalog.Package{Kind: catalog.Rust, Name: p.Name, Version: p.Version})
		}
	}
	return out, nil
}
