package brew

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// Casks finds casks: by the copy of the cask that Homebrew keeps, and by an application
// in the Caskroom, which is mostly a link to where the application was moved.
type Casks struct{}

var _ catalog.Extractor = Casks{}

// Name returns the name of the extractor in warnings.
func (Casks) Name() string { return "brew/cask" }

// Patterns selects copies of casks, applications and other files by which casks are recognized.
func (Casks) Patterns() catalog.Patterns {
	return catalog.Patterns{
		Names:      []string{"Info.plist", "source.properties"},
		Extensions: []string{".json", ".rb", ".app", ".sh"}, Symlinks: true, PartialRead: true,
	}
}

// FileRequired accepts files at their expected path in the Caskroom.
func (Casks) FileRequired(p string) bool {
	if !strings.Contains(p, "Caskroom/") {
		return false
	}
	_, _, ok := caskFromPath(p)
	return ok
}

// caskFromPath returns the token and the version in a path:
//
//	Caskroom/TOKEN/.metadata/VERSION/TIME/Casks/TOKEN.json (or .rb)
//	Caskroom/TOKEN/VERSION/NAME.app (a link) or NAME.app/Contents/Info.plist
//	Caskroom/TOKEN/VERSION/NAME.wrapper.sh, .../source.properties
func caskFromPath(p string) (token, version string, ok bool) {
	token, version, rest, ok := splitKeg(p, "Caskroom")
	if !ok {
		return "", "", false
	}
	parts := strings.Split(rest, "/")
	if version == ".metadata" {
		ext := path.Ext(p)
		good := len(parts) == 4 && parts[2] == "Casks" && (ext == ".json" || ext == ".rb") &&
			strings.TrimSuffix(parts[3], ext) == token
		return token, parts[0], good && parts[0] != ""
	}
	base := parts[len(parts)-1]
	switch {
	case strings.HasSuffix(base, ".app") && len(parts) == 1:
	case base == "Info.plist" && len(parts) == 3 && strings.HasSuffix(parts[0], ".app") && parts[1] == "Contents":
	case strings.HasSuffix(base, ".wrapper.sh") && len(parts) == 1:
	case base == "source.properties" && len(parts) <= 2:
	default:
		return "", "", false
	}
	return token, version, true
}

// Extract takes token and version from the path, unless it is the copy of a cask whose version was
// removed.
func (Casks) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	token, version, ok := caskFromPath(f.Path)
	if !ok {
		return nil, nil
	}
	if i := strings.LastIndex(f.Path, "/.metadata/"); i >= 0 {
		info, err := f.Stat(f.Path[:i] + "/" + version)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
			return nil, nil // it was removed, and its copy is a leftover
		}
		if err != nil {
			return nil, err
		}
	}
	return []catalog.Package{{Kind: catalog.Brew, Name: token, Version: version}}, nil
}
