// Package npm finds installed npm packages by their package.json, in node_modules and in the
// archives of Electron applications.
//
// It does not read lock files, and ignores a project's own package.json: that is not installed.
//
// Invariant: name and version of a package are from one package.json.
package npm

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/jsonlimit"
)

// Limits of a package.json. Decoded, 40,000 objects take some 20 MiB.
const (
	maxManifestBytes    = 4 << 20
	maxManifestObjects  = 40_000
	maxManifestElements = 400_000
)

// InstalledPackages reads the package.json files of installed packages.
type InstalledPackages struct{}

var _ catalog.Extractor = InstalledPackages{}

// Name returns the name of the extractor in warnings.
func (InstalledPackages) Name() string { return "npm/package.json" }

// Patterns selects every package.json.
func (InstalledPackages) Patterns() catalog.Patterns {
	return catalog.Patterns{Names: []string{"package.json"}}
}

// FileRequired accepts those below node_modules, where packages also bundle other packages, and
// those that Debian installs, also in a system within the tree, but not those of tests.
func (InstalledPackages) FileRequired(p string) bool {
	if inside, ok := pathInNodeModules(p); ok {
		return isPackageRoot(inside) || !isTestPath(inside)
	}
	return strings.Contains("/"+p, "/usr/share/nodejs/") && !catalog.IsTestData(p)
}

// pathInNodeModules returns the part of a path below the last node_modules.
func pathInNodeModules(p string) (inside string, ok bool) {
	i := strings.LastIndex("/"+p, "/node_modules/")
	if i < 0 {
		return "", false
	}
	return p[i+len("node_modules/"):], true
}

// isTestPath reports whether a path within a package leads to its tests or examples, which contain
// many packages that are not installed.
func isTestPath(inside string) bool {
	for part := range strings.SplitSeq(inside, "/") {
		switch part {
		case "test", "tests", "example", "examples":
			return true
		}
	}
	return catalog.IsTestData(inside)
}

// isPackageRoot reports whether a path below node_modules is the package.json of a package itself.
func isPackageRoot(inside string) bool {
	parts := strings.Count(inside, "/")
	return parts == 1 || parts == 2 && strings.HasPrefix(inside, "@")
}

// Extract reads one.
func (InstalledPackages) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	data, err := f.ReadAll(maxManifestBytes)
	if err != nil {
		return nil, err
	}
	inside, ok := pathInNodeModules(f.Path)
	within := ok && !isPackageRoot(inside)
	p, ok, err := parseManifest(data, within)
	if within {
		err = nil // data of a package may look like a package.json
	}
	if err != nil || !ok {
		return nil, err
	}
	return []catalog.Package{p}, nil
}

// manifest has the relevant keys of a package.json.
type manifest struct {
	Name     string          `json:"name"`
	Version  string          `json:"version"`
	License  json.RawMessage `json:"license"`
	Licenses json.RawMessage `json:"licenses"`
	Engines  json.RawMessage `json:"engines"`
	Unity    json.RawMessage `json:"unity"`
	Private  any             `json:"private"`
}

// parseManifest reads a package.json. It reports false without name and version, and for an extension of an
// editor or of a game engine, which share the file's name. Within another package it is one only if
// it was published: packages mark their own directories as private.
func parseManifest(data []byte, within bool) (catalog.Package, bool, error) {
	var m manifest
	data = trimBOM(data)
	if err := jsonlimit.CheckCounts(data, maxManifestObjects, maxManifestElements); err != nil {
		return catalog.Package{}, false, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return catalog.Package{}, false, err
	}
	var engines map[string]any
	if json.Unmarshal(m.Engines, &engines) == nil && engines["vscode"] != nil || m.Unity != nil ||
		!isValidName(m.Name) ||
		!isVersion(m.Version) {
		return catalog.Package{}, false, nil
	}
	if within && m.Private == true {
		return catalog.Package{}, false, nil
	}
	return catalog.Package{
		Kind: catalog.NPM, Name: m.Name, Version: m.Version,
		Licenses: append(parseLicenses(m.License), parseLicenses(m.Licenses)...),
	}, true, nil
}

// trimBOM drops a byte order mark.
func trimBOM(data []byte) []byte {
	if len(data) >= 3 && string(data[:3]) == "\xef\xbb\xbf" {
		return data[3:]
	}
	return data
}

func isValidName(name string) bool {
	return name != "" && len(name) <= 214 && !strings.ContainsAny(name, " \t\n\\<>{}") && !strings.HasPrefix(name, "/")
}

func isVersion(v string) bool {
	return v != "" && len(v) <= 256 && !strings.ContainsAny(v, " \t\n<>{}")
}

// parseLicenses reads a license in the historical forms of npm: a text, {"type": text}, or a list of
// these.
func parseLicenses(raw json.RawMessage) []string {
	var text string
	var object struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	var list []json.RawMessage
	switch {
	case len(raw) == 0:
		return nil
	case json.Unmarshal(raw, &text) == nil:
		return firstNonEmpty(text)
	case json.Unmarshal(raw, &object) == nil:
		return firstNonEmpty(object.Type, object.Name)
	case json.Unmarshal(raw, &list) == nil && len(list) <= 20:
		var out []string
		for _, r := range list {
			if json.Unmarshal(r, &text) == nil {
				out = append(out, firstNonEmpty(text)...)
			} else if json.Unmarshal(r, &object) == nil {
				out = append(out, firstNonEmpty(object.Type)...)
			}
		}
		return out
	default:
		return nil
	}
}

// firstNonEmpty returns the first text that is not empty.
func firstNonEmpty(texts ...string) []string {
	for _, t := range texts {
		if t = strings.TrimSpace(t); t != "" && len(t) <= 200 {
			return []string{t}
		}
	}
	return slices.Clip([]string(nil))
}
