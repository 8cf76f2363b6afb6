package catalog

import "strings"

// PackageType is the kind of a package: its "type" in reports.
type PackageType string

// The kinds. The first five are spelled as the specification does, the others are ours.
const (
	Gem      PackageType = "gem"
	Python   PackageType = "python"
	NPM      PackageType = "npm"
	Brew     PackageType = "brew"
	MacOSApp PackageType = "macos-app"
	Java     PackageType = "java"
	Go       PackageType = "go"
	Rust     PackageType = "rust"
	Pod      PackageType = "pod"
	MacOSPkg PackageType = "macos-pkg" // of an installer package of macOS
	Swift    PackageType = "swift"     // named by its repository: "github.com/apple/swift-nio"

	// Runtime is the interpreter or virtual machine of a language, wherever it was installed by hand or by
	// a version manager. Go's is of kind Go: its advisories are.
	Runtime PackageType = "runtime"

	// Packages of an operating system, by the format of its packages.
	Deb PackageType = "deb"
	RPM PackageType = "rpm"
	APK PackageType = "apk"

	// System is macOS itself. It is only searched for on request, and is in no list of kinds.
	System PackageType = "macos"
)

// Kinds lists them in the order in which they are counted and shown.
var Kinds = []PackageType{
	Gem, Python, NPM, Java, Go, Rust, Brew, MacOSApp, MacOSPkg, Pod, Swift, Runtime, Deb, RPM, APK,
}

// JRubySuffix ends the version of a gem that is built for JRuby.
const JRubySuffix = "-java"

// Package is one version of a package, and everywhere it was found.
type Package struct {
	Kind    PackageType
	Name    string // in the spelling of its ecosystem: "@babel/core", "org.yaml:snakeyaml", "openssl@3"
	Version string // as it was found, never empty

	Language string   // "ruby", "python", "javascript", "java", "go", "rust", "swift"; "" for none
	Licenses []string // as they were found, sorted; none is usual
	PURL     string
	CPEs     []string // CPE 2.3, formatted strings; at least one

	// Locations are where it was found, sorted, each once: paths from the root of the scanned tree,
	// with a leading slash.
	Locations []string

	// BundleIDs are those of macOS applications, sorted: they tell apart applications of the same
	// name. "" is that of an application without one. Nil for other kinds.
	BundleIDs []string
	// Replaced reports that its code is not that of its name and version (a Go module with a
	// replace directive, a local checkout), so that advisories do not apply.
	Replaced bool

	// Development reports that lock files alone name it, and each of them for development alone: nothing says
	// that it is installed.
	Development bool

	// Distribution is the release of the operating system that installed it, or that installed its
	// owner: ID ":" VERSION_ID of os-release, "debian:12", "rhel:9.4"; of Alpine with two numbers,
	// "alpine:3.20". "" for packages that no operating system installed, and where os-release has none.
	Distribution string
	// Owner is the package of the operating system or the formula of Homebrew that its files belong to,
	// kind "/" name "@" version: "deb/python3-django@3:3.2.19-1+deb12u1". "" for none.
	Owner string
	// Source and SourceVersion are those of the source package that it is built from. They are set for
	// all packages of operating systems: equal to Name and Version where their database has nothing
	// else. "" for other packages.
	Source, SourceVersion string
	// Arch is the architecture of a package of an operating system, as its database spells it.
	Arch string
}

// IsOS reports whether a kind is that of packages of an operating system.
func (t PackageType) IsOS() bool { return t == Deb || t == RPM || t == APK }

// OwnerName returns the package as the Owner of others.
func (p *Package) OwnerName() string { return string(p.Kind) + "/" + p.Name + "@" + p.Version }

// Release returns the two parts of Distribution.
func (p *Package) Release() (id, version string) {
	id, version, _ = strings.Cut(p.Distribution, ":")
	return id, version
}
