package scannerdiff

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/extractors"
)

// item is a package in a form that is the same for all scanners.
type item struct {
	kind          catalog.PackageType
	name, version string
}

// Findings are packages and the paths where each was found.
type Findings map[item][]string

// add adds a package. Spellings of names that an ecosystem treats as equal are unified, and so are
// the notations of Go versions.
func (f Findings) add(kind catalog.PackageType, name, version string, paths ...string) {
	switch kind {
	case catalog.Python:
		name = catalog.PythonName(name)
	case catalog.Go:
		version = strings.TrimPrefix(strings.TrimPrefix(version, "go"), "v")
		if name == "go" {
			name = "stdlib"
		}
	default:
	}
	if version == "UNKNOWN" {
		version = ""
	}
	k := item{kind, strings.ToLower(name), strings.ToLower(version)}
	for _, p := range paths {
		f[k] = append(f[k], strings.TrimPrefix(p, "/"))
	}
}

// ScanOurs returns the packages that the image scanner finds in a directory.
func ScanOurs(ctx context.Context, dir string) (Findings, error) {
	tree, closer, err := catalog.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	r, err := catalog.Scan(ctx, tree, catalog.Options{Extractors: extractors.All()})
	if err != nil {
		return nil, err
	}
	out := Findings{}
	for _, p := range r.Packages {
		for _, l := range p.Locations {
			out.add(p.Kind, p.Name, p.Version, catalog.FileOf(l)) // the others name the outer archive
		}
	}
	return out, nil
}

// urlKinds are the kinds by the types of package URLs.
var urlKinds = map[string]catalog.PackageType{
	"gem": catalog.Gem, "pypi": catalog.Python, "npm": catalog.NPM, "maven": catalog.Java, "golang": catalog.Go,
	"cargo": catalog.Rust, "brew": catalog.Brew, "macapps": catalog.MacOSApp, "cocoapods": catalog.Pod,
	"swift": catalog.Swift,
}

// plugins are those of osv-scalibr for the kinds of packages of languages, of Homebrew and of macOS.
const plugins = "javascript,python,java,go,rust,ruby,swift/podfilelock,swift/packageresolved,os/homebrew,os/macapps"

// ScanScalibr returns the packages that osv-scalibr finds in a directory. It writes its report to the file work.
func ScanScalibr(ctx context.Context, program, dir, work string) (Findings, error) {
	// A nonzero exit code may only mean single unreadable files.
	if text, err := exec.CommandContext(ctx, program, "-offline", "-root", dir, "-o", "cdx-json="+work, "-plugins",
		plugins).CombinedOutput(); err != nil {
		if _, missing := os.Stat(work); missing != nil {
			return nil, fmt.Errorf("%w: %s", err, text)
		}
	}
	var report struct {
		Components []struct {
			Name, Version, PURL string
			Evidence            struct {
				Occurrences []struct{ Location string }
			}
		}
	}
	if err := readJSON(work, &report); err != nil {
		return nil, err
	}
	out := Findings{}
	for _, c := range report.Components {
		kind, ok := urlKinds[strings.TrimPrefix(c.PURL[:max(strings.IndexByte(c.PURL, '/'), 0)], "pkg:")]
		if ok && len(c.Evidence.Occurrences) > 0 {
			out.add(kind, c.Name, c.Version, c.Evidence.Occurrences[0].Location)
		}
	}
	return out, nil
}

// syftKinds are the kinds by the types of syft.
var syftKinds = map[string]catalog.PackageType{
	"gem": catalog.Gem, "python": catalog.Python, "npm": catalog.NPM, "java-archive": catalog.Java,
	"go-module":  catalog.Go,
	"rust-crate": catalog.Rust, "homebrew": catalog.Brew, "apple-app-bundle": catalog.MacOSApp, "pod": catalog.Pod,
	"deb": catalog.Deb, "rpm": catalog.RPM, "apk": catalog.APK,
	"swift": catalog.Swift,
}

// ScanSyft returns the packages that syft finds in a directory. It writes its report to the file work.
func ScanSyft(ctx context.Context, program, dir, work string) (Findings, error) {
	cmd := exec.CommandContext(ctx, program, "scan", "-q", "dir:"+dir, "-o", "syft-json="+work)
	cmd.Env = append(os.Environ(), "SYFT_CHECK_FOR_APP_UPDATE=false", "SYFT_FILE_METADATA_SELECTION=none",
		"SYFT_PARALLELISM=2")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	var report struct {
		Artifacts []struct {
			Name, Version, Type, PURL string
			Locations                 []struct{ Path string }
		}
	}
	if err := readJSON(work, &report); err != nil {
		return nil, err
	}
	out := Findings{}
	for _, a := range report.Artifacts {
		kind, ok := syftKinds[a.Type]
		if !ok || len(a.Locations) == 0 {
			continue
		}
		name := a.Name
		switch kind {
		case catalog.Java:
			name = mavenName(a.PURL, a.Name)
		case catalog.Swift:
			name = swiftName(a.PURL, a.Name)
		default:
		}
		for _, l := range a.Locations {
			out.add(kind, name, a.Version, l.Path)
		}
	}
	return out, nil
}

// mavenName returns group and artifact of a package URL.
func mavenName(purl, name string) string {
	rest, _, _ := strings.Cut(strings.TrimPrefix(purl, "pkg:maven/"), "@")
	group, artifact, ok := strings.Cut(rest, "/")
	if !ok {
		return name
	}
	if plain, err := url.PathUnescape(group + ":" + artifact); err == nil {
		return plain
	}
	return group + ":" + artifact
}

// swiftName returns host and path of a package URL.
func swiftName(purl, name string) string {
	rest, _, _ := strings.Cut(strings.TrimPrefix(purl, "pkg:swift/"), "@")
	if plain, err := url.PathUnescape(rest); err == nil {
		return plain
	}
	return name
}

func readJSON(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
