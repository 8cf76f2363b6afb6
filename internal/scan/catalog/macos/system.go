package macos

import (
	"context"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// System finds macOS itself.
type System struct{}

var _ catalog.Extractor = System{}

// Name returns the name of the extractor in warnings.
func (System) Name() string { return "macos/system" }

// Patterns selects the list that names the system's version.
func (System) Patterns() catalog.Patterns {
	return catalog.Patterns{Names: []string{"SystemVersion.plist"}}
}

// FileRequired accepts it where it is in a system volume, as the root or below a directory.
func (System) FileRequired(p string) bool {
	return strings.HasSuffix("/"+p, "/System/Library/CoreServices/SystemVersion.plist")
}

// Extract reads it.
func (System) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	data, err := f.ReadAll(maxPlistBytes)
	if err != nil {
		return nil, err
	}
	var v struct {
		Name    any `plist:"ProductName"`
		Version any `plist:"ProductVersion"`
	}
	if err := decodePlist(data, &v); err != nil {
		return nil, err
	}
	return []catalog.Package{{Kind: catalog.System, Name: firstText(v.Name, "macOS"), Version: firstText(v.Version)}},
		nil
}
