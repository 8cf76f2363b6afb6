package match

import (
	"cmp"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/cpe"
	"github.com/buildyard/buildyard/internal/scan/match/vercmp"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// platform is the platform of a package, as far as it decides which criteria can be about it.
type platform struct {
	osProducts     []string // "vendor:product" of operating systems
	targetSoftware []string // software that a criterion may name as its target
}

var (
	macOSPlatform = platform{
		osProducts:     []string{"apple:macos", "apple:mac_os_x", "apple:mac_os", "apple:os_x"},
		targetSoftware: []string{"macos", "mac_os_x", "mac_os", "mac", "mac_os_x_server", "os_x", "osx", "apple_macos"},
	}
	linuxPlatform = platform{
		osProducts:     []string{"linux:linux_kernel"},
		targetSoftware: []string{"linux", "linux_kernel"},
	}
	applePlatform = platform{ // a pod is built into programs for any of them
		osProducts: append([]string{"apple:iphone_os", "apple:ipados", "apple:ios", "apple:tvos", "apple:watchos"},
			macOSPlatform.osProducts...),
		targetSoftware: append([]string{"iphone_os", "ipados", "ios", "tvos", "watchos"},
			macOSPlatform.targetSoftware...),
	}
	macOSOrLinux = platform{
		osProducts:     slices.Concat(macOSPlatform.osProducts, linuxPlatform.osProducts),
		targetSoftware: slices.Concat(macOSPlatform.targetSoftware, linuxPlatform.targetSoftware),
	}
)

// platformOf returns the platform of a package: Homebrew on Linux has its own directory, and a disk
// may have both.
func platformOf(p *catalog.Package) platform {
	switch p.Kind {
	case catalog.Pod:
		return applePlatform
	case catalog.Runtime:
		return runtimePlatform(p.Locations)
	case catalog.Brew:
		onLinux := 0
		for _, l := range p.Locations {
			if strings.Contains(l, "linuxbrew/") {
				onLinux++
			}
		}
		if onLinux > 0 && onLinux < len(p.Locations) {
			return macOSOrLinux
		}
		if onLinux > 0 {
			return linuxPlatform
		}
	}
	return macOSPlatform
}

// macOSDirs are directories that only macOS has, linuxDirs those that it does not have.
var (
	macOSDirs = []string{"/Users/", "/Library/", "/Applications/", "/opt/homebrew/", "/Volumes/"}
	linuxDirs = []string{"/home/", "/usr/lib/", "/nix/", "/snap/"}
)

// runtimePlatform returns the platform of a runtime: /usr/local and others are directories of both.
func runtimePlatform(locations []string) platform {
	in := func(dirs []string) bool {
		return len(locations) > 0 && !slices.ContainsFunc(locations, func(l string) bool {
			return !slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(l, d) })
		})
	}
	switch {
	case in(macOSDirs):
		return macOSPlatform
	case in(linuxDirs):
		return linuxPlatform
	}
	return macOSOrLinux
}

// freeEditions are those that a package of unknown edition may be: the free ones, and those that differ
// in their numbers alone. Paid ones ("enterprise") are other products.
var freeEditions = []string{
	"*", "-", "", "lts", "esr", "community", "open_source", "oss", "free", "stable", "standard",
	"continuous", "classic",
}

// productQuery is a package that is matched by products.
type productQuery struct {
	cpePart  string // of its CPEs: "a", or "o" for macOSPlatform itself
	products []cpe.Product
	platform platform
	packageVersion
	exactVersions []string // as of cpe.ExactVersions
}

func (j *matcher) newProductQuery(p *catalog.Package) (productQuery, error) {
	products, err := j.productsOf(p)
	if err != nil {
		return productQuery{}, err
	}
	it := productQuery{
		cpePart: "a", products: products, platform: platformOf(p),
		packageVersion: newPackageVersion(vercmp.NVD, cpe.UpstreamVersion(*p)), exactVersions: cpe.ExactVersions(*p),
	}
	if p.Kind == catalog.System {
		it.cpePart = "o"
	}
	// A guessed name counts when NVD has exactly that name. An application that names no maker
	// could be any other of that name.
	if p.Kind == catalog.MacOSApp && strings.Join(p.BundleIDs, "") == "" {
		it.products = slices.DeleteFunc(it.products, func(n cpe.Product) bool { return !n.Curated })
	}
	return it, nil
}

// matchesProduct reports whether the item is the product of a criterion.
func (it *productQuery) matchesProduct(c *cpeName) bool {
	if c.part != it.cpePart {
		return false
	}
	return slices.ContainsFunc(it.products, func(p cpe.Product) bool {
		return strings.EqualFold(p.Vendor, c.vendor) && strings.EqualFold(p.Product, c.product) &&
			(isUnspecified(c.targetSW) || strings.EqualFold(p.TargetSW, c.targetSW) ||
				slices.Contains(it.platform.targetSoftware, c.targetSW)) && mayBeEdition(p.Edition, c.swEdition)
	})
}

// mayBeEdition reports whether a criterion about one edition of a product may be about a package's.
func mayBeEdition(edition, ofCriterion string) bool {
	switch edition {
	case "":
		return slices.Contains(freeEditions, ofCriterion)
	case cpe.NoEdition:
		return isUnspecified(ofCriterion)
	}
	return edition == ofCriterion
}

// inRange reports whether the versions of a criterion contain that of the item.
func (it *productQuery) inRange(c *cpeName, k *vulndb.Criterion) (bool, error) {
	if it.err != nil {
		return false, it.err
	}
	if hasVersionBounds(k) {
		return it.containedIn(toRange(k))
	}
	switch c.version {
	case "*":
		return isUnspecified(c.update), nil
	case "-", "": // the product without a version, which the item has
		return false, nil
	}
	return it.isExactly(c.version, c.update)
}

// isExactly reports whether the item is one version. NVD's separate update field is part of the
// version in packages: "9.3" with "p2" is "9.3p2".
func (it *productQuery) isExactly(version, update string) (bool, error) {
	if !isUnspecified(update) {
		version += "-" + update
	}
	if slices.Contains(it.exactVersions, version) {
		return true, nil
	}
	n, err := it.compare(version)
	if err != nil { // the name of a commit, of a device: comparable only as text
		return strings.EqualFold(it.raw, version), nil
	}
	if n == 0 {
		return true, nil
	}
	if update != "*" {
		return false, nil
	}
	release, _ := strings.CutSuffix(strings.TrimRight(it.raw, digits), "p") // any update: also a patch of the version
	if release+"p" == it.raw || strings.TrimRight(release, digits) == release {
		return false, nil
	}
	n, _ = newPackageVersion(vercmp.NVD, release).compare(version) // which was compared above
	return n == 0, nil
}

const digits = "0123456789"

func hasVersionBounds(k *vulndb.Criterion) bool {
	return cmp.Or(k.StartIncluding, k.StartExcluding, k.EndIncluding, k.EndExcluding) != ""
}

// toRange returns the range of a criterion that has one. A branch that begins with 8.0.x begins with 8.0.
func toRange(k *vulndb.Criterion) vulndb.Range {
	return vulndb.Range{
		Introduced:     strings.TrimSuffix(cmp.Or(k.StartIncluding, k.StartExcluding), ".x"),
		IntroducedOpen: k.StartIncluding == "" && k.StartExcluding != "",
		Fixed:          k.EndExcluding,
		LastAffected:   k.EndIncluding,
	}
}

// criterionText formats the versions of a criterion for users.
func criterionText(c *cpeName, k *vulndb.Criterion) string {
	switch {
	case hasVersionBounds(k):
		return formatRange(toRange(k))
	case c.version == "*":
		return ">= 0"
	case isUnspecified(c.update):
		return "= " + c.version
	}
	return "= " + c.version + " " + c.update
}

// configurationResult is the result of evaluating NVD's configuration of one CVE for an item.
type configurationResult struct {
	applies   bool
	criterion *vulndb.Criterion // of the item, that applies
	cpe       cpeName
	err       error // of comparing versions
}

// evaluate reports whether a configuration applies to an item: all its nodes hold, and one
// of their criteria calls the item vulnerable.
func (j *matcher) evaluate(it *productQuery, a *vulndb.Applicability) configurationResult {
	out := configurationResult{applies: true}
	for i := range a.Nodes {
		if !j.nodeHolds(it, &a.Nodes[i], &out) {
			out.applies = false
			return out
		}
	}
	out.applies = out.criterion != nil
	return out
}

func (j *matcher) nodeHolds(it *productQuery, n *vulndb.Node, out *configurationResult) bool {
	holds := n.All && len(n.Criteria) > 0
	for i := range n.Criteria {
		k := &n.Criteria[i]
		c, ok := parseCPE(k.CPE)
		one := ok && c.vendor != "*" && c.product != "*" && j.criterionHolds(it, &c, k, out)
		if one && k.Vulnerable && !n.Negate && out.criterion == nil && it.matchesProduct(&c) {
			out.criterion, out.cpe = k, c
		}
		if n.All {
			holds = holds && one
		} else {
			holds = holds || one
		}
	}
	return holds != n.Negate
}

// criterionHolds reports whether a criterion is about the item itself, about its platform, or about
// another package that was found.
func (j *matcher) criterionHolds(it *productQuery, c *cpeName, k *vulndb.Criterion, out *configurationResult) bool {
	switch {
	case it.matchesProduct(c):
		holds, err := it.inRange(c, k)
		if err != nil {
			out.err = err
		}
		return holds
	case c.part == "o":
		return j.mayBePlatform(it, c, k)
	case c.part == "a":
		return j.hasProduct(c, k)
	}
	return false
}

// mayBePlatform reports whether a criterion can be about the platform of an item. Its version counts where
// it was found; mostly it is unknown, and rules nothing out.
func (j *matcher) mayBePlatform(it *productQuery, c *cpeName, k *vulndb.Criterion) bool {
	if !slices.Contains(it.platform.osProducts, c.vendor+":"+c.product) {
		return false
	}
	for _, system := range j.queriesFor(c.vendor, c.product) {
		if !system.matchesProduct(c) || c.version == "-" {
			continue
		}
		if holds, err := system.inRange(c, k); err == nil {
			return holds
		}
	}
	return true
}

// hasProduct reports whether any package that was found is what a criterion names.
func (j *matcher) hasProduct(c *cpeName, k *vulndb.Criterion) bool {
	for _, it := range j.queriesFor(c.vendor, c.product) {
		if !it.matchesProduct(c) {
			continue
		}
		if holds, _ := it.inRange(c, k); holds || c.version == "-" {
			return true
		}
	}
	return false
}
