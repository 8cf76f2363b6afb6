package npm

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/jsonlimit"
)

// maxLockBytes is the maximum size of a lock file, in bytes.
const maxLockBytes = 32 << 20

// LockFiles reads the lock files of npm itself, of all three versions.
type LockFiles struct{}

var _ catalog.Extractor = LockFiles{}

// Name returns the name of the extractor in warnings.
func (LockFiles) Name() string { return "npm/package-lock.json" }

// Patterns selects both of its names.
func (LockFiles) Patterns() catalog.Patterns {
	return catalog.Patterns{Names: []string{"package-lock.json", "npm-shrinkwrap.json"}}
}

// Declares reports that packages of the file need not be installed.
func (LockFiles) Declares(string) bool { return true }

// FileRequired accepts those of projects.
func (LockFiles) FileRequired(p string) bool {
	return !catalog.WithinPackage(p) && !catalog.IsTestData(p)
}

// lockFile has the relevant parts of a lock file. Since version 2 packages are listed by their target
// directory, before that they are nested by name.
type lockFile struct {
	Packages     map[string]lockedPackage     `json:"packages"`
	Dependencies map[string]*nestedDependency `json:"dependencies"`
}

type lockedPackage struct {
	Name    string        `json:"name"` // when it is installed under another
	Version string        `json:"version"`
	License lenientString `json:"license"`
	Dev     bool          `json:"dev"`
}

// lenientString is a text, or empty for a value of another type, which then takes no memory.
type lenientString string

// UnmarshalJSON never fails.
func (w *lenientString) UnmarshalJSON(data []byte) error {
	var text string
	if len(data) > 0 && data[0] == '"' && json.Unmarshal(data, &text) == nil {
		*w = lenientString(text)
	}
	return nil
}

type nestedDependency struct {
	Version      string                       `json:"version"`
	Dev          bool                         `json:"dev"`
	Dependencies map[string]*nestedDependency `json:"dependencies"`
}

// Extract reads one.
func (LockFiles) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	data, err := f.ReadAll(maxLockBytes)
	if err != nil {
		return nil, err
	}
	var l lockFile
	if err := jsonlimit.Check(data); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(trimBOM(data), &l); err != nil {
		return nil, err
	}
	if l.Packages == nil {
		return appendNested(l.Dependencies, nil), nil
	}
	var out []catalog.Package
	for dir, p := range l.Packages {
		name, ok := pathInNodeModules(dir)
		if !ok { // it is the project itself or a part of it
			continue
		}
		if p.Name != "" {
			name = p.Name
		}
		found := catalog.Package{Kind: catalog.NPM, Name: name, Version: p.Version, Development: p.Dev}
		if p.License != "" {
			found.Licenses = firstNonEmpty(string(p.License))
		}
		out = appendReleased(out, found)
	}
	return out, nil
}

// appendNested lists nested packages.
func appendNested(all map[string]*nestedDependency, out []catalog.Package) []catalog.Package {
	for name, p := range all {
		if p == nil {
			continue
		}
		version := p.Version
		if alias, ok := strings.CutPrefix(version, "npm:"); ok {
			if at := strings.LastIndexByte(alias, '@'); at > 0 {
				name, version = alias[:at], alias[at+1:]
			}
		}
		out = appendReleased(out,
			catalog.Package{Kind: catalog.NPM, Name: name, Version: version, Development: p.Dev})
		out = appendNested(p.Dependencies, out)
	}
	return out
}

// appendReleased adds a package if its version is one, not the address of a directory or a
// repository.
func appendReleased(out []catalog.Package, p catalog.Package) []catalog.Package {
	if !isValidName(p.Name) || !isVersion(p.Version) || p.Version[0] < '0' || p.Version[0] > '9' ||
		strings.Contains(p.Version, "/") {
		return out
	}
	return append(out, p)
}
