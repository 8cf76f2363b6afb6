package sbom

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	packageurl "github.com/package-url/packageurl-go"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/osrelease"
	"github.com/buildyard/buildyard/internal/scan/catalog/rpm"
)

// Properties of components that the scanners of this project write.
const (
	propertyDistribution  = "buildyard:distribution"
	propertySource        = "buildyard:source"
	propertySourceVersion = "buildyard:sourceVersion"
	propertyArch          = "buildyard:arch"
	propertyOwner         = "buildyard:owner"
	propertyBundleID      = "buildyard:bundleId"
	propertyReplaced      = "buildyard:replaced"
)

// Bounds on texts of a package.
const (
	maxNameBytes    = 1024
	maxVersionBytes = 512
	maxTextBytes    = 4096 // of a path, a license and others
	maxLocations    = 10_000
)

// Contents are the packages of a document.
type Contents struct {
	Format     string            // "CycloneDX 1.6", "SPDX-2.3"
	Packages   []catalog.Package // not merged
	Components int
	Omitted    []Omitted // components that are not packages of a known kind
	Incomplete bool      // the document says that it is, or parts of it have a wrong form
	Invalid    int       // components with a wrong form
}

// Omitted are components that are left out for one reason.
type Omitted struct {
	Kind     string // of their package URLs: "nuget"; "" without one
	Reason   string
	Count    int
	Examples []string // names and versions of the first ones
}

// maxExamples limits the components that are named for one reason.
const maxExamples = 3

// Read reads a file.
func Read(name string) (*Contents, error) {
	d, err := read(name)
	if err != nil {
		return nil, err
	}
	return d.contents("/" + filepath.Base(name)), nil
}

// contents converts components to packages. Those without a path are at that of the document.
func (d *document) contents(location string) *Contents {
	out := &Contents{Format: d.format, Components: len(d.components), Incomplete: d.incomplete, Invalid: d.invalid}
	omitted := map[string]*Omitted{}
	release := d.release()
	for i := range d.components {
		c := &d.components[i]
		if isNotSoftware(c) {
			continue
		}
		p, kind, problem := c.toPackage(d.isOurs)
		if problem != "" {
			o := omitted[kind+"\x00"+problem]
			if o == nil {
				o = &Omitted{Kind: kind, Reason: problem}
				omitted[kind+"\x00"+problem] = o
			}
			if o.Count++; o.Count <= maxExamples {
				o.Examples = append(o.Examples, strings.TrimSpace(cut(c.name, 100)+" "+cut(c.version, 100)))
			}
			continue
		}
		if p.Kind.IsOS() && p.Distribution == "" {
			p.Distribution = release
		}
		if len(p.Locations) == 0 {
			p.Locations = []string{location}
		}
		out.Packages = append(out.Packages, p)
	}
	setDistributions(out.Packages)
	for _, key := range slices.Sorted(maps.Keys(omitted)) {
		out.Omitted = append(out.Omitted, *omitted[key])
	}
	return out
}

// setDistributions sets the releases of packages that belong to one of an operating system, where SPDX has only its
// name: that of the only package with this name.
func setDistributions(packages []catalog.Package) {
	releases := map[string]string{} // of packages of operating systems by their names as owners; "": several
	for i := range packages {
		if p := &packages[i]; p.Kind.IsOS() {
			name := p.OwnerName()
			if known, ok := releases[name]; ok && known != p.Distribution {
				releases[name] = ""
			} else {
				releases[name] = p.Distribution
			}
		}
	}
	for i := range packages {
		if p := &packages[i]; p.Owner != "" && p.Distribution == "" {
			p.Distribution = releases[p.Owner]
		}
	}
}

// release returns that of the only operating system among the components; "" for none.
func (d *document) release() string {
	found := ""
	for i := range d.components {
		c := &d.components[i]
		if c.kind != "operating-system" {
			continue
		}
		r := releaseName(strings.ToLower(c.name), c.version)
		if found != "" && found != r {
			return ""
		}
		found = r
	}
	return found
}

// notSoftware are the types of components that are not installed packages; of these, libraries are the usual ones.
var notSoftware = []string{
	"file", "container", "operating-system", "data", "device", "machine-learning-model", "cryptographic-asset",
	"source", "archive",
}

func isNotSoftware(c *component) bool { return c.purl == "" && slices.Contains(notSoftware, c.kind) }

// kinds are those of package URLs.
var kinds = map[string]catalog.PackageType{
	"gem": catalog.Gem, "pypi": catalog.Python, "npm": catalog.NPM, "maven": catalog.Java, "golang": catalog.Go,
	"cargo": catalog.Rust, "brew": catalog.Brew, "cocoapods": catalog.Pod, "deb": catalog.Deb, "rpm": catalog.RPM,
	"apk": catalog.APK, "alpine": catalog.APK, "swift": catalog.Swift,
}

// runtimes are the names of runtimes, whose package URLs are generic.
var runtimes = []string{"python", "node", "php", "perl", "ruby", "openjdk", "oracle-jdk"}

// genericKind returns the kind of a component whose package URL is generic.
func (c *component) genericKind(u packageurl.PackageURL) (catalog.PackageType, bool) {
	switch {
	case u.Namespace == "" && slices.Contains(runtimes, u.Name):
		return catalog.Runtime, true
	case u.Namespace != "macos":
		return "", false
	case c.kind == "application":
		return catalog.MacOSApp, true
	case u.Name == "macOS" || u.Name == "Mac OS X":
		return catalog.System, true
	default:
		return catalog.MacOSPkg, true
	}
}

// The reasons for components that are left out.
const (
	reasonNoPURL  = "without a package URL are not evaluated"
	reasonKind    = "are of a kind that is not evaluated"
	reasonInvalid = "have an invalid package URL, or no name or version"
)

// toPackage returns a package, or why there is none. ours has names and versions as a report has them.
func (c *component) toPackage(ours bool) (p catalog.Package, kind, problem string) {
	if c.purl == "" {
		return p, "", reasonNoPURL
	}
	u, err := packageurl.FromString(c.purl)
	if err != nil {
		return p, "", reasonInvalid
	}
	known := false
	if p.Kind, known = kinds[u.Type]; u.Type == packageurl.TypeGeneric {
		p.Kind, known = c.genericKind(u)
	}
	if !known {
		return p, cut(u.Type, 40), reasonKind
	}
	if p.Kind == catalog.MacOSApp {
		p.BundleIDs = c.values[propertyBundleID]
	}
	qualifiers := u.Qualifiers.Map()
	p.Name, p.Version = c.nameOf(p.Kind, u), c.versionOf(p.Kind, u, qualifiers)
	if ours {
		p.Name, p.Version = cmp.Or(c.name, p.Name), cmp.Or(c.version, p.Version)
	}
	if p.Name == "" || p.Version == "" || len(p.Name) > maxNameBytes || len(p.Version) > maxVersionBytes {
		return p, cut(u.Type, 40), reasonInvalid
	}
	p.Licenses, p.Locations = texts(c.licenses), paths(c.locations)
	p.Owner = c.value(propertyOwner)
	p.Replaced = c.value(propertyReplaced) == "true"
	p.Distribution = c.value(propertyDistribution)
	if p.Kind.IsOS() {
		c.setOrigin(&p, u, qualifiers)
	}
	return p, "", ""
}

// nameOf returns the name of a package in the spelling of its ecosystem. Package URLs of some are in lower case: the
// name of the component counts if it is the same but for that.
func (c *component) nameOf(kind catalog.PackageType, u packageurl.PackageURL) string {
	name := u.Name
	switch {
	case u.Namespace == "" || kind.IsOS() || u.Type == packageurl.TypeGeneric || kind == catalog.Pod:
	case kind == catalog.Java:
		name = u.Namespace + ":" + u.Name
	case kind == catalog.Swift:
		name = swiftName(u)
	default:
		name = u.Namespace + "/" + u.Name
	}
	if kind == catalog.Pod && u.Subpath != "" {
		name += "/" + u.Subpath
	}
	if strings.EqualFold(c.name, name) ||
		kind == catalog.Python && catalog.PythonName(c.name) == catalog.PythonName(name) {
		return c.name
	}
	if kind == catalog.Go && strings.EqualFold(c.group+"/"+c.name, name) {
		return c.group + "/" + c.name
	}
	return name
}

// swiftName returns the repository of a Swift package, whose owner is the namespace. Older versions of syft write the
// whole repository there.
func swiftName(u packageurl.PackageURL) string {
	repository, isWhole := strings.CutSuffix(u.Namespace, ".git")
	if isWhole || strings.Count(repository, "/") == 2 && strings.HasPrefix(repository, "github.com/") {
		return repository
	}
	return u.Namespace + "/" + u.Name
}

// versionOf returns the version as the ecosystem spells it.
func (c *component) versionOf(kind catalog.PackageType, u packageurl.PackageURL, qualifiers map[string]string) string {
	version := cmp.Or(u.Version, c.version)
	switch epoch := qualifiers["epoch"]; {
	case kind == catalog.RPM && epoch != "" && epoch != "0":
		version = epoch + ":" + version
	case kind == catalog.RPM:
		version = strings.TrimPrefix(version, "0:")
	case kind == catalog.Gem && qualifiers["platform"] == "java" && !strings.HasSuffix(version, catalog.JRubySuffix):
		version += catalog.JRubySuffix
	}
	return version
}

// setOrigin sets where a package of an operating system is from: what this project writes counts first.
func (c *component) setOrigin(p *catalog.Package, u packageurl.PackageURL, qualifiers map[string]string) {
	p.Arch = cut(cmp.Or(c.value(propertyArch), qualifiers["arch"]), 64)
	p.Distribution = cmp.Or(p.Distribution, distribution(u.Namespace, qualifiers["distro"]))
	p.Source, p.SourceVersion = c.value(propertySource), c.value(propertySourceVersion)
	if p.Source != "" {
		return
	}
	epoch, version, ok := strings.Cut(p.Version, ":")
	if epoch += ":"; !ok {
		epoch, version = "", p.Version
	}
	upstream := cut(qualifiers["upstream"], maxNameBytes)
	if p.Source, p.SourceVersion = rpm.SplitSource(upstream, version, epoch); p.Source == "" {
		p.Source, p.SourceVersion, _ = strings.Cut(upstream, "@")
	}
	if name := c.value("aquasecurity:trivy:SrcName"); p.Source == "" && name != "" {
		p.Source, p.SourceVersion = name, c.value("aquasecurity:trivy:SrcVersion")
		if release := c.value("aquasecurity:trivy:SrcRelease"); release != "" {
			p.SourceVersion += "-" + release
		}
		if e := c.value("aquasecurity:trivy:SrcEpoch"); e != "" && e != "0" {
			p.SourceVersion = e + ":" + p.SourceVersion
		}
	}
}

// distribution returns a release of the qualifier "distro": ID-VERSION, VERSION alone, or the name of a release of
// Debian or Ubuntu.
func distribution(namespace, distro string) string {
	if number, ok := codenames[distro]; ok {
		return releaseName(namespace, number)
	}
	if distro == "" || '0' <= distro[0] && distro[0] <= '9' {
		return releaseName(namespace, distro)
	}
	dash := strings.LastIndexByte(distro, '-')
	if dash < 0 {
		return ""
	}
	id, version := distro[:dash], distro[dash+1:]
	return releaseName(id, cmp.Or(codenames[version], version))
}

// codenames are the names of releases that package URLs have.
var codenames = map[string]string{
	"wheezy": "7", "jessie": "8", "stretch": "9", "buster": "10", "bullseye": "11", "bookworm": "12", "trixie": "13",
	"trusty": "14.04", "xenial": "16.04", "bionic": "18.04", "focal": "20.04", "jammy": "22.04", "noble": "24.04",
}

// distributionIDs are the IDs of os-release by other names of distributions.
var distributionIDs = map[string]string{
	"redhat": "rhel", "alma": "almalinux", "rockylinux": "rocky", "suse": "sles", "opensuse.leap": "opensuse-leap",
	"opensuse leap": "opensuse-leap", "suse linux enterprise server": "sles", "alpine linux": "alpine",
	"debian gnu/linux": "debian",
}

// releaseName returns a release as catalog.Package has it; "" without an ID and a version.
func releaseName(id, version string) string {
	id = cmp.Or(distributionIDs[id], id)
	if id == "debian" {
		version, _, _ = strings.Cut(version, ".") // os-release has only the first number
	}
	if id == "" || version == "" || version[0] < '0' || version[0] > '9' || len(id)+len(version) > 100 {
		return ""
	}
	return osrelease.Name(id, version)
}

// value returns the first value of a property.
func (c *component) value(name string) string {
	if list := c.values[name]; len(list) > 0 && len(list[0]) <= maxTextBytes {
		return list[0]
	}
	return ""
}

// texts returns the texts of a bounded length.
func texts(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" || len(s) > maxTextBytes })
}

// paths returns locations with a leading slash.
func paths(list []string) (out []string) {
	for _, l := range texts(list[:min(len(list), maxLocations)]) {
		out = append(out, "/"+strings.TrimLeft(l, "/"))
	}
	return out
}

// cut shortens a text for a report.
func cut(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// String describes what was left out.
func (o Omitted) String() string {
	text := strings.Join(o.Examples, ", ")
	if more := o.Count - len(o.Examples); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
