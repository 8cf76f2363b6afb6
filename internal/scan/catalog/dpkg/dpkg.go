// Package dpkg finds the packages that dpkg installed, in the databases of Debian, Ubuntu and their
// relatives, and in those of images without dpkg ("distroless"); and it names the packages that own
// files.
//
// It runs no program of dpkg, and it verifies no file.
//
// Invariant: packages that were removed, or whose installation failed, are not found.
package dpkg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/osrelease"
)

const (
	statusFile = "var/lib/dpkg/status"
	// statusDir has a file for each package, without the field Status.
	statusDir = "var/lib/dpkg/status.d"

	maxStatusBytes = 64 << 20
	maxPackages    = 100_000
	sumsSuffix     = ".md5sums"
)

// Packages reads the databases.
type Packages struct{}

var (
	_ catalog.Extractor   = Packages{}
	_ catalog.OwnerFinder = Packages{}

	_ catalog.CompanionReader = Packages{}
)

// Name returns the name of the extractor in warnings.
func (Packages) Name() string { return "deb/dpkg" }

// Patterns selects the database, and the files in status.d.
func (Packages) Patterns() catalog.Patterns {
	return catalog.Patterns{Names: []string{"status"}, Dirs: []string{"status.d"}}
}

// FileRequired accepts those below the directory of dpkg, except lists of checksums.
func (Packages) FileRequired(p string) bool {
	_, ok := Packages{}.Root(p)
	return ok && !strings.HasSuffix(p, sumsSuffix)
}

// ReadsCompanion accepts the lists of files, and the file with the release.
func (Packages) ReadsCompanion(p string) bool {
	dir := path.Dir(p)
	switch {
	case strings.HasSuffix(p, listSuffix):
		return strings.HasSuffix("/"+dir, "/"+infoDir)
	case strings.HasSuffix(p, sumsSuffix):
		return strings.HasSuffix("/"+dir, "/"+statusDir)
	}
	return strings.HasSuffix("/"+p, "/"+diversionsFile) || osrelease.IsFile(p)
}

// Root returns the root of the system that a file of the database belongs to.
func (Packages) Root(p string) (root string, ok bool) {
	if dir := path.Dir(p); path.Base(dir) == "status.d" {
		return osrelease.Root(dir, statusDir)
	}
	return osrelease.Root(p, statusFile)
}

// Kind returns the kind of the packages.
func (Packages) Kind() catalog.PackageType { return catalog.Deb }

// Extract reads one.
func (Packages) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	data, err := f.ReadAll(maxStatusBytes)
	if err != nil {
		return nil, err
	}
	root, _ := Packages{}.Root(f.Path)
	list, err := parseStatus(data, path.Base(path.Dir(f.Path)) != "status.d")
	if len(list) == 0 {
		return nil, err
	}
	distribution := osrelease.Distribution(f.Tree(), root)
	for i := range list {
		list[i].Distribution = distribution
	}
	return list, err
}

// errNotDatabase reports a file without any package, which is not empty either.
var errNotDatabase = errors.New("not a package database of dpkg: it names no package")

// paragraph has the relevant fields of a package, in the syntax of deb822(5).
type paragraph struct {
	name, status, version, source, arch []byte
	hasFields                           bool
}

// parseStatus reads paragraphs, which blank lines separate. requireStatus leaves out those without the field
// Status.
func parseStatus(data []byte, requireStatus bool) ([]catalog.Package, error) {
	var out []catalog.Package
	var p paragraph
	incomplete, named := 0, false
	isBlank := len(bytes.TrimSpace(data)) == 0
	end := func() {
		named = named || len(p.name) > 0
		switch found, ok := p.toPackage(requireStatus); {
		case ok && isComplete(found):
			out = append(out, found)
		case ok:
			incomplete++
		}
		p = paragraph{}
	}
	for len(data) > 0 && len(out) < maxPackages {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		switch {
		case len(bytes.TrimSpace(line)) == 0:
			end()
		case line[0] != ' ' && line[0] != '\t': // others continue a field
			p.add(line)
		}
	}
	end()
	switch {
	case len(data) > 0:
		return out, fmt.Errorf("%w: the database has more than %d packages", catalog.ErrTooLarge, maxPackages)
	case incomplete > 0:
		return out, fmt.Errorf("%d packages of the database lack a name or a version", incomplete)
	case requireStatus && !named && !isBlank:
		return out, errNotDatabase
	}
	return out, nil
}

// add stores a field. Names of fields differ in capital letters only in files that people write.
func (p *paragraph) add(line []byte) {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return
	}
	p.hasFields = true
	var field *[]byte
	switch string(name) {
	case "Package":
		field = &p.name
	case "Status":
		field = &p.status
	case "Version":
		field = &p.version
	case "Source":
		field = &p.source
	case "Architecture":
		field = &p.arch
	default:
		return
	}
	*field = bytes.TrimSpace(value)
}

// toPackage returns the package; false for one that is not installed.
func (p *paragraph) toPackage(requireStatus bool) (catalog.Package, bool) {
	if !p.hasFields || len(p.status) == 0 && requireStatus || len(p.status) > 0 && !isInstalled(p.status) {
		return catalog.Package{}, false
	}
	out := catalog.Package{
		Kind: catalog.Deb, Name: string(p.name), Version: string(p.version), Arch: string(p.arch),
	}
	out.Source, out.SourceVersion = out.Name, out.Version
	if source, version, _ := strings.Cut(string(p.source), "("); source != "" {
		out.Source = strings.TrimSpace(source)
		if version = strings.TrimSpace(strings.TrimSuffix(version, ")")); version != "" {
			out.SourceVersion = version
		}
	}
	return out, true
}

func isComplete(p catalog.Package) bool { return p.Name != "" && p.Version != "" }

// isInstalled reports whether a status is that of a package whose files are all there: "want flag state".
func isInstalled(status []byte) bool {
	parts := bytes.Fields(status)
	if len(parts) != 3 {
		return false
	}
	switch string(parts[2]) {
	case "installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending":
		return true
	}
	return false
}
