package feed

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// maxStoredIDs limits how many names of vulnerabilities the advisories of one record may have, all
// together: each package has all of them. Updates of kernels have some 100,000.
const maxStoredIDs = 2_000_000

// zeroYear begins the date that Debian's converter writes where it knows none.
const zeroYear = "0001-"

// distributionSources are the authors of records about packages of operating systems.
var distributionSources = []vulndb.Source{
	vulndb.DebianTracker, vulndb.DebianOSV, vulndb.DebianDSA, vulndb.UbuntuOSV, vulndb.UbuntuUSN, vulndb.AlpineOSV,
	vulndb.RockyErrata, vulndb.AlmaErrata, vulndb.RedHatErrata, vulndb.SUSEErrata,
}

func isDistribution(s vulndb.Source) bool { return slices.Contains(distributionSources, s) }

// storedEcosystem returns the ecosystem under which an advisory is stored, "" for others. The releases
// of distributions are ecosystems of their own.
func storedEcosystem(name string) vulndb.Ecosystem {
	if e := vulndb.Ecosystem(name); e.IsRelease() {
		return e
	}
	if e := vulndb.Ecosystem(beforeColon(name)); slices.Contains(storedEcosystems, e) {
		return e
	}
	return ""
}

// noticeID matches updates that fix no vulnerability: bug fixes, enhancements, and patches of running
// kernels, which change no package.
var noticeID = regexp.MustCompile(`^((RH|RL|AL)(BA|EA)|(open)?SUSE-(RU|FU|OU)|LSN)-`)

func isNotice(id string) bool { return noticeID.MatchString(id) }

// distroSpecific has the fields that distributions, and Go's vulnerability database, add to an affected package.
// Fields of other types are ignored: other sources have their own under the same name.
type distroSpecific struct {
	Urgency  lenientString     // of Debian
	Severity lenientString     // a word
	Binaries map[string]string // of SUSE: the version that fixes each package built from this one
	Imports  lenientImports    // of Go's vulnerability database
}

// UnmarshalJSON accepts any value.
func (d *distroSpecific) UnmarshalJSON(b []byte) error {
	var fields struct {
		Urgency  lenientString   `json:"urgency"`
		Severity lenientString   `json:"severity"`
		Binaries json.RawMessage `json:"binaries"`
		Imports  lenientImports  `json:"imports"`
	}
	if json.Unmarshal(b, &fields) != nil {
		return nil
	}
	d.Urgency, d.Severity, d.Imports = fields.Urgency, fields.Severity, fields.Imports
	var lists []map[string]lenientString
	if json.Unmarshal(fields.Binaries, &lists) != nil {
		return nil
	}
	for _, list := range lists {
		for name, version := range list {
			if d.Binaries == nil {
				d.Binaries = map[string]string{}
			}
			d.Binaries[name] = string(version)
		}
	}
	return nil
}

// affectedPackage is a package under the name by which it is found.
type affectedPackage struct {
	name     string
	ranges   []vulndb.Range
	versions []string
}

// packages returns the packages that an entry is about. SUSE names the source, and lists what is built
// from it with the versions that have the fix. Lists of versions repeat the ranges of a distribution.
func (a *osvAffected) packages(eco vulndb.Ecosystem, ranges []vulndb.Range) []affectedPackage {
	one := affectedPackage{a.Package.Name, ranges, a.Versions}
	if eco.IsRelease() && len(ranges) > 0 {
		one.versions = nil
	}
	if d := eco.Distribution(); d != vulndb.SUSE && d != vulndb.OpenSUSE || len(a.Distro.Binaries) == 0 {
		return []affectedPackage{one}
	}
	var out []affectedPackage
	for _, name := range slices.Sorted(maps.Keys(a.Distro.Binaries)) {
		version := a.Distro.Binaries[name]
		if name == "" || strings.Contains(name, "\x00") || isInvalidVersion(version) {
			continue
		}
		out = append(out, affectedPackage{name: name, ranges: []vulndb.Range{{Fixed: version}}})
	}
	return out
}

// countNames returns how many packages a record names.
func (o *osvRecord) countNames() int {
	n := len(o.Affected)
	for _, a := range o.Affected {
		n += len(a.Distro.Binaries)
	}
	return n
}
