// Package cocoapods finds the pods that CocoaPods recorded: Podfile.lock and the Manifest.lock of
// what is installed.
//
// It does not read podspecs: those of a project describe the project itself.
//
// Invariant: a pod is listed once with its version, whichever of its subspecs are used.
package cocoapods

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/yamllimit"
)

// maxLockBytes is the maximum size of a lock file, in bytes.
const maxLockBytes = 8 << 20

// LockFiles reads lock files.
type LockFiles struct{}

var _ catalog.Extractor = LockFiles{}

// Name returns the name of the extractor in warnings.
func (LockFiles) Name() string { return "pod/Podfile.lock" }

// Patterns selects both names.
func (LockFiles) Patterns() catalog.Patterns {
	return catalog.Patterns{Names: []string{"Podfile.lock", "Manifest.lock"}}
}

// Declares reports that packages of the file need not be installed.
func (LockFiles) Declares(string) bool { return true }

// FileRequired accepts a Manifest.lock in a directory of pods only.
func (LockFiles) FileRequired(p string) bool {
	return (!strings.HasSuffix(p, "Manifest.lock") || strings.HasSuffix("/"+p, "/Pods/Manifest.lock")) &&
		!catalog.WithinPackage(p) && !catalog.IsTestData(p)
}

// lockFile has the relevant parts of a lock file.
type lockFile struct {
	Pods            []yaml.Node               `yaml:"PODS"`
	ExternalSources map[string]map[string]any `yaml:"EXTERNAL SOURCES"`
}

// podLine matches a pod with its version: "Firebase/Core (10.0.0)".
var podLine = regexp.MustCompile(`^([^\s(]+) \(([^)=<>~]+)\)$`)

// Extract reads one.
func (LockFiles) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	data, err := f.ReadAll(maxLockBytes)
	if err != nil {
		return nil, err
	}
	return parseLock(data)
}

func parseLock(data []byte) ([]catalog.Package, error) {
	var lock lockFile
	if err := yamllimit.Check(data); err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(data, &lock); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var out []catalog.Package
	for _, n := range lock.Pods {
		m := podLine.FindStringSubmatch(entryText(n))
		if m == nil {
			if n.Kind != yaml.ScalarNode && n.Kind != yaml.MappingNode {
				return out, errors.New("unexpected element in the list of pods")
			}
			continue
		}
		name, _, _ := strings.Cut(m[1], "/")
		key := name + " " + m[2]
		if seen[key] {
			continue
		}
		seen[key] = true
		_, local := lock.ExternalSources[name][":path"]
		out = append(out, catalog.Package{Kind: catalog.Pod, Name: name, Version: m[2], Replaced: local})
	}
	return out, nil
}

// entryText returns the text of an entry: an entry with dependencies is a key with a list.
func entryText(n yaml.Node) string {
	if n.Kind == yaml.MappingNode && len(n.Content) > 0 {
		return n.Content[0].Value
	}
	return n.Value
}
