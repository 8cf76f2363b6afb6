// Package cpe names packages as NVD does: by vendor and product, in the form of CPE 2.3.
//
// It is not a matcher, and the name that it makes up for a package outside its table is a guess
// that only serves to tell packages apart.
//
// Invariant: every package has at least one CPE, and a name is marked as curated only if it is in
// the manually maintained table.
package cpe

import (
	"cmp"
	_ "embed"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/facebookincubator/nvdtools/wfn"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// Product is a name that NVD may use for a package. Vendor and Product are without escapes.
type Product struct {
	Vendor, Product string
	TargetSW        string // what the package runs in, such as "node.js"; "" is anything
	// Edition is the software edition that the package is, such as "esr"; NoEdition is the one without a name, ""
	// is any that may be meant.
	Edition string
	Curated bool // it is in the table
}

// NoEdition is the Edition of a package that is not a special edition.
const NoEdition = "-"

//go:embed products.tsv
var productsTSV string

// curatedProducts are the lines of the table: kind and name -> products.
var curatedProducts = sync.OnceValue(func() map[string][]Product {
	out := map[string][]Product{}
	for line := range strings.Lines(productsTSV) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if strings.HasPrefix(line, "#") || len(fields) < 3 {
			continue
		}
		key := fields[0] + "\t" + fields[1]
		out[key] = []Product{}
		if fields[2] == noProduct {
			continue
		}
		for text := range strings.SplitSeq(fields[2], ",") {
			parts := strings.Split(text+":::", ":")
			out[key] = append(out[key], Product{
				Vendor: parts[0], Product: parts[1], Edition: parts[2], TargetSW: parts[3], Curated: true,
			})
		}
	}
	return out
})

// noProduct is in the table for packages that are no product of NVD, although one has their name.
const noProduct = "none"

// minPackages is of how many formulae in the table a packaged vendor is the vendor.
const minPackages = 3

// packagedVendors are the vendors of several formulae in the table, and of fewer applications: the formula with the
// name of an application is another program (onedrive is not Microsoft's).
var packagedVendors = sync.OnceValue(func() map[string]bool {
	formulae, applications := map[string]int{}, map[string]int{}
	for key, products := range curatedProducts() {
		if len(products) == 0 {
			continue
		}
		switch kind, _, _ := strings.Cut(key, "\t"); kind {
		case formulaIdentity:
			formulae[products[0].Vendor]++
		case caskIdentity, "app":
			applications[products[0].Vendor]++
		}
	}
	out := map[string]bool{}
	for vendor, n := range formulae {
		out[vendor] = n >= minPackages && n > applications[vendor]
	}
	return out
})

// NamesCask reports whether a name is that of a cask in the table, and not of a formula there.
func NamesCask(name string) bool {
	_, formula := curatedProducts()[formulaIdentity+"\t"+name]
	_, cask := curatedProducts()[caskIdentity+"\t"+name]
	return cask && !formula
}

// IsPackagedVendor reports whether several formulae in the table are products of a vendor, and fewer applications, so
// that a formula with the name of another of its products very likely is that, too.
func IsPackagedVendor(vendor string) bool { return packagedVendors()[vendor] }

// Products names a package: from the table, or else by a guess. Each possible identity of the
// package gets its own names, those in the table first, so that none hides another.
func Products(p catalog.Package) []Product {
	var names, guesses []Product
	all := identities(p)
	for _, id := range all {
		found, known := curatedFor(p, id)
		names = append(names, firefoxEdition(p, found)...)
		if !known && (id != "" || len(all) == 1) {
			guesses = append(guesses, guessProduct(p, id).normalized())
		}
	}
	seen := map[Product]bool{}
	return slices.DeleteFunc(append(names, guesses...), func(n Product) bool {
		n.Curated = false
		known := seen[n]
		seen[n] = true
		return known
	})
}

// The identities of a package of Homebrew: a formula and a cask of one name may be different
// software ("docker").
const formulaIdentity, caskIdentity = "brew", "cask"

// identities distinguishes packages with the same kind, name and version: applications by their
// bundle identifiers, formulae and casks by their paths. Others have one, "".
func identities(p catalog.Package) []string {
	switch {
	case p.Kind == catalog.MacOSApp && len(p.BundleIDs) > 0:
		return p.BundleIDs
	case p.Kind == catalog.Brew && len(p.Locations) > 0:
		var out []string
		for _, l := range p.Locations {
			id := formulaIdentity
			if strings.Contains(l, "/Caskroom/") {
				id = caskIdentity
			}
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
		return out
	case p.Kind == catalog.Brew:
		return []string{formulaIdentity}
	}
	return []string{""}
}

// IsCask reports whether a package is a cask of Homebrew, not a formula.
func IsCask(p catalog.Package) bool {
	return p.Kind == catalog.Brew && !slices.Contains(identities(p), formulaIdentity)
}

// curatedFor returns the products in the table for one identity of a package, and whether it is there.
func curatedFor(p catalog.Package, id string) (found []Product, known bool) {
	for _, k := range tableKeys(p, id) {
		if found, known = curatedProducts()[k]; known {
			return found, true
		}
	}
	return nil, false
}

// podSuffixes are what the names of pods have in addition to that of the library in them.
var podSuffixes = []string{"-universal", "-apple", "-ios", "-static", "-xcframework"}

// ProductNames returns the names that NVD may have for the product of a formula, a cask or a pod, the most likely
// first: that without its version, and those with underscores or "lib". Casks with the name of a formula end with
// "-app".
func ProductNames(p catalog.Package) []string {
	name, _, _ := strings.Cut(normalize(p.Name), "@")
	if IsCask(p) {
		name = strings.TrimSuffix(name, "-app")
	}
	if p.Kind == catalog.Pod {
		for _, s := range podSuffixes {
			name = strings.TrimSuffix(name, s)
		}
	}
	if name == "" {
		return nil
	}
	out := []string{name}
	if spelled := strings.ReplaceAll(name, "-", "_"); spelled != name {
		out = append(out, spelled)
	}
	if !strings.HasPrefix(name, "lib") && !IsCask(p) {
		out = append(out, "lib"+name)
	}
	return out
}

// tableKeys returns the table keys of a package, the most reliable first.
func tableKeys(p catalog.Package, id string) []string {
	base, _, _ := strings.Cut(p.Name, "@")
	switch p.Kind {
	case catalog.Brew:
		return []string{id + "\t" + p.Name, id + "\t" + base}
	case catalog.MacOSApp:
		return []string{"app\t" + id, "name\t" + applicationName(p, id)}
	case catalog.Pod:
		return []string{"pod\t" + p.Name}
	case catalog.Runtime:
		return []string{"runtime\t" + p.Name}
	default:
		return nil
	}
}

// applicationName returns the name of an application if its bundle identifier cannot mean another: the
// identifier of a helper names its application, and begins with that of the application.
func applicationName(p catalog.Package, bundleID string) string {
	if bundleID == "" || strings.HasPrefix(bundleID, "com.apple.") {
		return p.Name
	}
	return ""
}

// targetSoftware maps a kind to the software its packages run in.
var targetSoftware = map[catalog.PackageType]string{
	catalog.NPM: "node.js", catalog.Python: "python", catalog.Gem: "ruby", catalog.Rust: "rust", catalog.Go: "go",
}

// normalized spells a name as NVD does, with a substitute where nothing is left.
func (n Product) normalized() Product {
	n.Product = cmp.Or(normalize(n.Product), "unknown")
	n.Vendor = cmp.Or(normalize(n.Vendor), n.Product)
	return n
}

// guessProduct derives a name from that of the package and its identity.
func guessProduct(p catalog.Package, id string) Product {
	target := targetSoftware[p.Kind]
	vendor, product := p.Name, p.Name
	switch p.Kind {
	case catalog.NPM:
		if scope, name, ok := strings.Cut(p.Name, "/"); ok {
			vendor, product = strings.TrimPrefix(scope, "@"), name
		}
	case catalog.Java:
		group, artifact, _ := strings.Cut(p.Name, ":")
		vendor, product = reversedDomainOwner(group), artifact
	case catalog.Go:
		return goProduct(p.Name)
	case catalog.Swift: // owner and name of the repository
		if parts := strings.Split(p.Name, "/"); len(parts) > 2 {
			vendor, product = parts[len(parts)-2], parts[len(parts)-1]
		}
	case catalog.Brew:
		vendor, _, _ = strings.Cut(p.Name, "@")
		product = vendor
	case catalog.MacOSApp:
		if id != "" {
			vendor = reversedDomainOwner(id)
		}
	case catalog.MacOSPkg:
		vendor = reversedDomainOwner(p.Name)
	case catalog.System:
		vendor, product = "apple", "macos"
	case catalog.Gem, catalog.Python, catalog.Rust, catalog.Pod, catalog.Runtime, catalog.Deb, catalog.RPM, catalog.APK:
	}
	if p.Kind == catalog.MacOSApp && normalize(product) == "" { // of letters that a CPE cannot contain
		product = id[strings.LastIndexByte(id, '.')+1:]
	}
	return Product{Vendor: vendor, Product: product, TargetSW: target}
}

// goProduct names a Go module: by its owner and the last part of its path that is not a major
// version.
func goProduct(name string) Product {
	if name == "stdlib" || name == "toolchain" {
		return Product{Vendor: "golang", Product: "go"}
	}
	parts := strings.Split(name, "/")
	if last := parts[len(parts)-1]; len(parts) > 1 && len(last) > 1 && last[0] == 'v' &&
		strings.Trim(last[1:], "0123456789") == "" {
		parts = parts[:len(parts)-1]
	}
	product := parts[len(parts)-1]
	vendor := product
	switch {
	case parts[0] == "golang.org":
		vendor = "golang"
	case len(parts) > 2:
		vendor = parts[1]
	case len(parts) == 2:
		host := strings.Split(parts[0], ".")
		vendor = host[max(len(host)-2, 0)]
	}
	return Product{Vendor: vendor, Product: product, TargetSW: "go"}
}

// reversedDomainOwner returns the owner in a name that begins with a reversed domain: "apache" in
// "org.apache.commons".
func reversedDomainOwner(name string) string {
	parts := strings.Split(name, ".")
	if len(parts) > 1 && len(parts[0]) <= 4 {
		return parts[1]
	}
	return parts[0]
}

// normalize spells a name as NVD does: in lower case, with underscores for blanks, and without
// characters that a CPE cannot contain.
func normalize(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return '_'
		case r > unicode.MaxASCII || !unicode.IsPrint(r) || r == '\\':
			return -1
		default:
			return unicode.ToLower(r)
		}
	}, strings.TrimSpace(name))
	return strings.Trim(name, "_:") // the library cannot read a value that begins with a colon
}

// maxNames limits the names of a package in reports. A package has a few, unless very many
// applications share a name with different bundle identifiers; matching uses all names.
const maxNames = 20

// ForPackage returns the CPEs of a package as formatted strings: each name without the software that it
// runs in, as users write it to ignore a package, and with it where there is one.
func ForPackage(p catalog.Package) []string {
	var out []string
	version := escapeAttribute(nvdVersion(p))
	part := "a"
	if p.Kind == catalog.System {
		part = "o"
	}
	names := Products(p)
	for _, name := range names[:min(len(names), maxNames)] {
		a := wfn.Attributes{
			Part: part, Vendor: escapeAttribute(name.Vendor), Product: escapeAttribute(name.Product), Version: version,
		}
		out = append(out, a.BindToFmtString())
		if name.TargetSW != "" {
			a.TargetSW = escapeAttribute(name.TargetSW)
			out = append(out, a.BindToFmtString())
		}
	}
	return out
}

// escapeAttribute encodes a plain text as a value of a name; the empty one is any. The function of the
// library would end it at a colon, and return any for some texts.
func escapeAttribute(text string) string {
	var out strings.Builder
	out.Grow(len(text) + 8)
	for len(text) > 0 {
		if c := text[0]; c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			out.WriteByte('\\')
		}
		_, size := utf8.DecodeRuneInString(text)
		out.WriteString(text[:size])
		text = text[size:]
	}
	return out.String()
}

// UpstreamVersion returns the version as the maker of a package assigned it: NVD does not know
// Homebrew's revision, the part after a comma of a cask, and the build number in parentheses of an
// application, such as 5.17.5 (29101). Of packages of operating systems these are the epoch before a
// colon, and the distribution's revision after the last dash.
func UpstreamVersion(p catalog.Package) string {
	if p.Kind == catalog.MacOSApp {
		v, _, _ := strings.Cut(p.Version, " (")
		return v
	}
	if p.Kind.IsOS() {
		_, v, ok := strings.Cut(p.Version, ":")
		if !ok {
			v = p.Version
		}
		if dash := strings.LastIndexByte(v, '-'); dash > 0 {
			v = v[:dash]
		}
		return v
	}
	if p.Kind == catalog.Pod && p.Name == "OpenSSL-Universal" {
		return opensslOfPod(p.Version)
	}
	if p.Kind != catalog.Brew {
		return p.Version
	}
	v, rest, _ := strings.Cut(p.Version, ",")
	if v == "8" && strings.HasPrefix(p.Name, "temurin") { // 8,402,06 is 8u402
		update, _, _ := strings.Cut(rest, ",")
		return "8.0." + update
	}
	if i := strings.LastIndexByte(v, '_'); i > 0 && strings.Trim(v[i+1:], "0123456789") == "" {
		v = v[:i]
	}
	return v
}

// nvdVersion returns a version as NVD writes it: without a packager's additions.
func nvdVersion(p catalog.Package) string {
	v := UpstreamVersion(p)
	switch p.Kind {
	case catalog.Go:
		v = strings.TrimSuffix(strings.TrimPrefix(v, "v"), "+incompatible")
	case catalog.Gem:
		v = strings.TrimSuffix(v, catalog.JRubySuffix)
	case catalog.Python, catalog.NPM, catalog.Java, catalog.Rust, catalog.Brew, catalog.MacOSApp, catalog.Pod,
		catalog.Runtime, catalog.Swift, catalog.MacOSPkg, catalog.System, catalog.Deb, catalog.RPM,
		catalog.APK:
	}
	return normalize(v)
}
