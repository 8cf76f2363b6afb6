package match

import (
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match/vercmp"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// namesOfAdvisories is whose names advisories have.
type namesOfAdvisories int

const (
	sourceNames  namesOfAdvisories = iota // of source packages
	packageNames                          // of all that is built from a source: what is left out is not affected
	eitherNames                           // of packages, or of their source alone
)

// distribution describes how the packages of one operating system are matched.
type distribution struct {
	kind    catalog.PackageType
	scheme  vercmp.Scheme
	sources []vulndb.Source // as of ecosystem
	names   namesOfAdvisories
	// release returns the ecosystem of a release of os-release, "" where that has none.
	release func(version string) vulndb.Ecosystem
}

// The precedence of sources. Debian's tracker is newer than its copy in OSV; announcements of fixes
// (DSA, USN) do not list what is open.
var (
	debianSources = []vulndb.Source{vulndb.DebianTracker, vulndb.DebianOSV, vulndb.DebianDSA, vulndb.OSV}
	ubuntuSources = []vulndb.Source{vulndb.UbuntuOSV, vulndb.UbuntuUSN, vulndb.OSV}
	suse          = distribution{
		catalog.RPM, vercmp.RPM,
		[]vulndb.Source{vulndb.SUSEErrata, vulndb.OSV},
		eitherNames,
		func(v string) vulndb.Ecosystem {
			major, pack, _ := strings.Cut(v, ".")
			switch {
			case major >= "16": // it has no service packs
				major = v
			case pack != "" && pack != "0":
				major += " SP" + pack
			}
			return vulndb.SUSE + ":Linux Enterprise Server " + vulndb.Ecosystem(major)
		},
	}
)

// distributions are those whose advisories are used, by the ID of os-release. Derivatives have other
// packages than the distribution in their ID_LIKE, and are in no list.
var distributions = map[string]distribution{
	"debian": {catalog.Deb, vercmp.Deb, debianSources, sourceNames, ofMajor(vulndb.Debian + ":")},
	"ubuntu": {catalog.Deb, vercmp.Deb, ubuntuSources, sourceNames, func(v string) vulndb.Ecosystem {
		return vulndb.Ubuntu + ":" + vulndb.Ecosystem(v)
	}},
	"alpine": {
		catalog.APK, vercmp.APK,
		[]vulndb.Source{vulndb.AlpineOSV, vulndb.OSV},
		sourceNames,
		func(v string) vulndb.Ecosystem {
			return vulndb.Alpine + ":v" + vulndb.Ecosystem(v)
		},
	},
	"rocky": {
		catalog.RPM, vercmp.RPM,
		[]vulndb.Source{vulndb.RockyErrata, vulndb.OSV},
		eitherNames,
		ofMajor(vulndb.RockyLinux + ":"),
	},
	"almalinux": {
		catalog.RPM, vercmp.RPM,
		[]vulndb.Source{vulndb.AlmaErrata, vulndb.OSV},
		packageNames,
		ofMajor(vulndb.AlmaLinux + ":"),
	},
	"rhel": {
		catalog.RPM, vercmp.RPM,
		[]vulndb.Source{vulndb.RedHatErrata, vulndb.OSV},
		packageNames,
		ofMajor(vulndb.RedHat + ":enterprise_linux:"),
	},
	"sles": suse, "sled": suse, "sles_sap": suse, "sle_hpc": suse,
	"opensuse-leap": {catalog.RPM, vercmp.RPM, suse.sources, suse.names, func(v string) vulndb.Ecosystem {
		return vulndb.OpenSUSE + ":Leap " + vulndb.Ecosystem(v)
	}},
	"opensuse-tumbleweed": {catalog.RPM, vercmp.RPM, suse.sources, suse.names, func(string) vulndb.Ecosystem {
		return vulndb.OpenSUSE + ":Tumbleweed"
	}},
}

// ofMajor returns a function that returns the ecosystem of the first number of a version.
func ofMajor(prefix vulndb.Ecosystem) func(string) vulndb.Ecosystem {
	return func(version string) vulndb.Ecosystem {
		major, _, _ := strings.Cut(version, ".")
		return prefix + vulndb.Ecosystem(major)
	}
}

// advisoryQuery is a question to the database: the advisories about a package under one of its names.
type advisoryQuery struct {
	ecosystem
	packageName string
	// bySource reports that the name is that of a package's source, while its other advisories have its
	// own name.
	bySource bool
}

// queriesOf appends the queries for a package to a list, in order of precedence: of those with a record
// of a vulnerability, the first decides.
func queriesOf(out []advisoryQuery, p *catalog.Package) []advisoryQuery {
	if p.Kind.IsOS() {
		return append(out, queriesOfOS(p)...)
	}
	if e, ok := ecosystems[p.Kind]; ok {
		out = append(out, advisoryQuery{ecosystem: e, packageName: p.Name})
	}
	if p.Kind == catalog.Brew || p.Kind == catalog.Runtime {
		name, _, _ := strings.Cut(p.Name, "@")
		out = append(out, runtimeQueries[name]...)
	}
	return out
}

// queriesOfOS returns the queries for a package of an operating system. The advisories of Debian,
// Ubuntu and Alpine have names of source packages. Those of Red Hat and AlmaLinux have names of
// packages, those of Rocky Linux have either, and those of SUSE have what is built from the source where
// they list it.
func queriesOfOS(p *catalog.Package) []advisoryQuery {
	id, version := p.Release()
	d, ok := distributions[id]
	if !ok || d.kind != p.Kind {
		return nil
	}
	eco := d.release(version)
	if !eco.IsRelease() {
		return nil
	}
	e := ecosystem{eco, d.scheme, d.sources}
	source, sourceVersion := sourceOf(p)
	if d.names != sourceNames {
		out := []advisoryQuery{{ecosystem: e, packageName: p.Name}}
		if source != p.Name && d.names == eitherNames {
			out = append(out, advisoryQuery{ecosystem: e, packageName: source, bySource: true})
		}
		return out
	}
	out := []advisoryQuery{{ecosystem: e, packageName: source}}
	if id == "ubuntu" && strings.Contains(sourceVersion, "esm") { // built for Ubuntu Pro
		e.name = vulndb.Ubuntu + ":Pro:" + vulndb.Ecosystem(version)
		out = append([]advisoryQuery{{ecosystem: e, packageName: source}}, out...)
	}
	return out
}

// signedKernel begins the name of the source that has only the signatures of a kernel: advisories have
// that of the kernel.
const signedKernel = "linux-signed"

// sourceOf returns the source package of a package of an operating system, as advisories name it.
func sourceOf(p *catalog.Package) (name, version string) {
	rest, ok := strings.CutPrefix(p.Source, signedKernel)
	if !ok || p.Kind != catalog.Deb {
		return p.Source, p.SourceVersion
	}
	if strings.HasPrefix(p.Distribution, "debian:") { // linux-signed-amd64 6.1.76+1 is linux 6.1.76-1
		return "linux", strings.Replace(p.SourceVersion, "+", "-", 1)
	}
	return "linux" + rest, p.SourceVersion // linux-signed-hwe-6.5 is linux-hwe-6.5
}

// versionFor returns the version of a package that advisories of a query have, and false where it is
// not known.
func (q *advisoryQuery) versionFor(p *catalog.Package) (packageVersion, bool) {
	switch {
	case p.Kind == catalog.Deb || p.Kind == catalog.APK:
		_, version := sourceOf(p)
		return newPackageVersion(q.scheme, version), true
	case q.bySource:
		// The name of a source RPM has no epoch; that of the package is the same where the versions are.
		return newPackageVersion(q.scheme, p.Version), withoutEpoch(p.Version) == withoutEpoch(p.SourceVersion)
	}
	return q.versionOf(p), true
}

func withoutEpoch(version string) string {
	if _, rest, ok := strings.Cut(version, ":"); ok {
		return rest
	}
	return version
}

// isModular reports whether an RPM is of a module, of which several streams exist side by side.
func isModular(version string) bool { return strings.Contains(version, ".module") }

// ofStream returns, of a module's package, the advisories about the streams that are nearest to a
// version, by the numbers that both begin with: nodejs 20 and 22 have fixes of their own. Other lists
// are returned whole.
func ofStream(p *catalog.Package, s packageVersion, list []*vulndb.Advisory) []*vulndb.Advisory {
	if s.scheme != vercmp.RPM || !isModular(s.raw) {
		return list
	}
	best, numbers := 0, 2
	if slices.ContainsFunc(singleNumberStreams, func(name string) bool { return strings.HasPrefix(p.Name, name) }) {
		numbers = 1
	}
	var out []*vulndb.Advisory
	for _, a := range list {
		n := 0
		for _, r := range a.Ranges {
			n = max(n, commonNumbers(streamVersion(p.Name, s.raw), streamVersion(a.Name, r.Fixed), numbers))
		}
		if n > best {
			best, out = n, nil
		}
		if n == best {
			out = append(out, a)
		}
	}
	return out
}

// singleNumberStreams begin the names of packages whose streams differ in the first number: nodejs 20,
// postgresql 15. Those of others differ in the first two: php 7.4, ruby 3.1.
var singleNumberStreams = []string{"nodejs", "npm", "postgresql", "redis", "varnish", "llvm", "clang"}

// streamVersion returns the version of a module's package that its stream is named by. The same npm is in several
// streams of nodejs, whose version its release has: 1:10.8.2-1.18.20.8.1.module is of nodejs 18.
func streamVersion(name, version string) string {
	version = withoutEpoch(version)
	if name == "npm" {
		_, release, _ := strings.Cut(version, "-")
		if _, node, ok := strings.Cut(release, "."); ok {
			return node
		}
	}
	return version
}

// commonNumbers returns how many of the first numbers of two versions are equal, of at most so many.
func commonNumbers(a, b string, most int) int {
	x, y := strings.SplitN(a, ".", most+1), strings.SplitN(b, ".", most+1)
	n := 0
	for n < most && n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	return n
}

// runtimeQueries are the queries for runtimes about which sources other than NVD have advisories, by the name of
// their formula without its version.
var runtimeQueries = map[string][]advisoryQuery{
	"ruby":  {{ecosystem: rubies, packageName: "ruby"}},
	"jruby": {{ecosystem: rubies, packageName: "jruby"}},
	"mruby": {{ecosystem: rubies, packageName: "mruby"}},
	"go": {
		{ecosystem: goDistribution, packageName: "stdlib"},
		{ecosystem: goDistribution, packageName: "toolchain"},
	},
}

var (
	// rubies are the advisories about implementations of Ruby, whose versions are those of gems.
	rubies = ecosystem{vulndb.Rubies, vercmp.RubyGems, []vulndb.Source{vulndb.RubySec}}
	// goDistribution are the advisories about Go itself.
	goDistribution = ecosystem{vulndb.Go, vercmp.GoTool, []vulndb.Source{vulndb.GoVuln, vulndb.GHSA, vulndb.OSV}}
)
