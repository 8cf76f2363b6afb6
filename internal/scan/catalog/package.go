package catalog

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

	// System is macOS itself. It is only searched for on request, and is in no list of kinds.
	System PackageType = "macos"
)

// Kinds lists them in the order in which they are counted and shown.
var Kinds = []PackageType{Gem, Python, NPM, Java, Go, Rust, Brew, MacOSApp, Pod}

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
}
