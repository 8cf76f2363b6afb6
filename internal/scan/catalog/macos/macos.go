// Package macos finds applications of macOS by the Info.plist of their bundles. It finds them at
// any path and however deep they are nested, and macOS itself on request.
//
// It does not find frameworks, plug-ins or applications for phones.
//
// Invariant: an application has a name: from its property list, or else its directory's.
package macos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"howett.net/plist"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// maxPlistBytes is the maximum size of a property list, in bytes. One of an application has some
// kilobytes; some have lists of every type of file.
const maxPlistBytes = 4 << 20

// Applications finds applications.
type Applications struct{}

var _ catalog.Extractor = Applications{}

// Name returns the name of the extractor in warnings.
func (Applications) Name() string { return "macos/application" }

// Patterns selects property lists of bundles.
func (Applications) Patterns() catalog.Patterns {
	return catalog.Patterns{Names: []string{"Info.plist"}}
}

// FileRequired accepts NAME.app/Contents/Info.plist.
func (Applications) FileRequired(p string) bool {
	return strings.HasSuffix(p, ".app/Contents/Info.plist")
}

// bundleInfo has the relevant keys of a property list. Its values may be of any type.
type bundleInfo struct {
	Name         any `plist:"CFBundleName"`
	DisplayName  any `plist:"CFBundleDisplayName"`
	Identifier   any `plist:"CFBundleIdentifier"`
	Version      any `plist:"CFBundleVersion"`
	ShortVersion any `plist:"CFBundleShortVersionString"`
}

// Extract reads one.
func (Applications) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	data, err := f.ReadAll(maxPlistBytes)
	if err != nil {
		return nil, err
	}
	var b bundleInfo
	if err := decodePlist(data, &b); err != nil {
		return nil, err
	}
	dir := strings.TrimSuffix(path.Base(strings.TrimSuffix(f.Path, "/Contents/Info.plist")), ".app")
	p := catalog.Package{
		Kind: catalog.MacOSApp, Name: firstText(b.DisplayName, b.Name, dir),
		Version:   firstText(b.ShortVersion, b.Version),
		BundleIDs: []string{firstText(b.Identifier)},
	}
	if p.Version == "" {
		return nil, nil // some helpers have none
	}
	return []catalog.Package{p}, nil
}

// firstText returns the first value that is a text, not empty, and without a placeholder of the build.
func firstText(values ...any) string {
	for _, v := range values {
		s, ok := v.(string)
		s = strings.TrimSpace(s)
		if ok && s != "" && len(s) <= 256 && !strings.Contains(s, "$(") && !strings.Contains(s, "${") &&
			!strings.ContainsAny(s, "\n\r\x00") {
			return s
		}
	}
	return ""
}

// decodePlist reads a property list of either form. The reader for binary ones trusts sizes in the file,
// so that these are checked before.
func decodePlist(data []byte, into any) (err error) {
	if len(data) == 0 {
		return errors.New("the property list is empty")
	}
	if bytes.HasPrefix(data, []byte("bplist")) {
		if err := checkBinaryPlist(data); err != nil {
			return err
		}
	} else if plistDepth(data) > maxDepth {
		return errors.New("the property list is nested too deeply")
	}
	if _, err := plist.Unmarshal(data, into); err != nil {
		return fmt.Errorf("parse property list: %w", err)
	}
	return nil
}

// maxDepth limits the nesting of the elements of a property list.
const maxDepth = 100

// plistDepth returns the maximum nesting of a property list, or a larger number. It counts the elements
// of an XML list, or the brackets of a text list.
func plistDepth(data []byte) int {
	open, most := 0, 0
	for i := 0; i+1 < len(data); i++ {
		switch c, next := data[i], data[i+1]; {
		case c == '<' && next == '/', c == '}', c == ')':
			open = max(open-1, 0)
		case c == '<' && next != '!' && next != '?', c == '{', c == '(':
			open++
			if end := bytes.IndexByte(data[i:min(len(data), i+64)], '>'); c == '<' && end > 0 && data[i+end-1] == '/' {
				open--
			}
		}
		most = max(most, open)
	}
	return most
}
