package feed

import (
	"bytes"
	"cmp"
	"path"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/google/osv-scalibr/semantic"

	"github.com/buildyard/buildyard/internal/scan/catalog/tomllimit"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/versionrange"
)

// rustAdvisory is the front matter of an advisory of RustSec. Its versions are Cargo's requirements
// that match the unaffected versions of a crate.
type rustAdvisory struct {
	Advisory struct {
		ID            string   `toml:"id"`
		Package       string   `toml:"package"`
		Date          string   `toml:"date"`
		Withdrawn     string   `toml:"withdrawn"`
		Informational string   `toml:"informational"`
		Aliases       []string `toml:"aliases"`
		CVSS          string   `toml:"cvss"`
	} `toml:"advisory"`
	Versions struct {
		Patched    []string `toml:"patched"`
		Unaffected []string `toml:"unaffected"`
	} `toml:"versions"`
}

const tomlFence = "```"

// maxFrontMatterBytes is how many bytes of front matter are read: a few hundred are usual, and the parser of
// TOML may take a thousand times as many.
const maxFrontMatterBytes = 64 << 10

func parseRustSec(it Item) Record {
	id := strings.TrimSuffix(path.Base(it.Name), ".md")
	r := Record{Feed: string(vulndb.RustSec), ID: id}
	head, found := bytes.CutPrefix(bytes.TrimSpace(it.Data), []byte(tomlFence+"toml"))
	head, _, ended := bytes.Cut(head, []byte("\n"+tomlFence))
	if !found || !ended {
		r.addRejection("its front matter does not end")
		return r
	}
	if len(head) > maxFrontMatterBytes {
		r.addRejection("its front matter is longer than 64 KiB")
		return r
	}
	var a rustAdvisory
	err := tomllimit.Check(head)
	if err == nil {
		_, err = toml.Decode(string(head), &a)
	}
	if err != nil {
		r.addRejection(shortError(err))
		return r
	}
	r.ID = cmp.Or(a.Advisory.ID, id)
	r.Modified = parseTime(a.Advisory.Date)
	if t := parseTime(a.Advisory.Withdrawn); t.After(r.Modified) {
		r.Modified = t // its date remains that of the first publication
	}
	switch {
	case a.Advisory.ID == "" || a.Advisory.Package == "":
		r.addRejection("it names no package or id")
	case a.Advisory.Withdrawn != "":
		r.Dropped = Withdrawn
	case a.Advisory.Informational != "":
		r.Dropped = Informational
	case path.Base(path.Dir(path.Dir(it.Name))) == "rust": // Rust itself: its library, cargo, rustdoc
		r.Dropped = OtherEcosystem
	default:
		a.fillRecord(&r)
	}
	return r
}

// fillRecord converts it to OSV's form, where names and scores are handled.
func (a *rustAdvisory) fillRecord(r *Record) {
	ranges, err := affectedRanges(compareCargoVersions, parseCargoRequirement,
		append(a.Versions.Patched, a.Versions.Unaffected...))
	if err != nil {
		r.addRejection(shortError(err))
		return
	}
	if len(ranges) == 0 {
		r.Dropped = NoVersions
		return
	}
	o := osvRecord{ID: a.Advisory.ID, Aliases: a.Advisory.Aliases}
	if a.Advisory.CVSS != "" {
		o.Severity = []osvSeverity{{Type: "CVSS", Score: a.Advisory.CVSS}}
	}
	cves, related := o.splitAliases(vulndb.RustSec)
	r.Advisories = []vulndb.Advisory{{
		ID: o.ID, Source: vulndb.RustSec, CVEs: cves, Related: related, Ecosystem: vulndb.Crates,
		Name: a.Advisory.Package,
		URL:  vulndb.RecordURL(vulndb.RustSec, o.ID), Ranges: ranges,
	}}
	o.vulnerabilities(r, vulndb.RustSec, cves, related)
}

func compareCargoVersions(a, b string) int {
	c, err := semantic.ParseSemverVersion(a).CompareStr(b)
	if err != nil {
		return strings.Compare(a, b)
	}
	return c
}

// cargoVersion is a version whose parts may be missing.
type cargoVersion struct {
	numbers    []uint64 // one to three
	preRelease string   // with its "-"
}

func (v cargoVersion) String() string { return joinNumbers(v.numbers) + v.preRelease }

// nextAfter returns the lowest version, with pre-releases, after the part at i is incremented.
func (v cargoVersion) nextAfter(i int) string {
	n := make([]uint64, 3)
	copy(n, v.numbers[:i+1])
	n[i]++
	return joinNumbers(n) + "-0"
}

func joinNumbers(list []uint64) string {
	n := make([]uint64, 3)
	copy(n, list)
	return strconv.FormatUint(n[0], 10) + "." + strconv.FormatUint(n[1], 10) + "." + strconv.FormatUint(n[2], 10)
}

func parseCargoVersion(s string) (v cargoVersion, err error) {
	s, _, _ = strings.Cut(s, "+")
	if i := strings.IndexByte(s, '-'); i >= 0 {
		s, v.preRelease = s[:i], s[i:]
	}
	parts := strings.Split(s, ".")
	for i, p := range parts {
		if p == "*" || p == "x" {
			if i == 0 || i != len(parts)-1 || v.preRelease != "" {
				return v, errInvalidRequirement
			}
			break
		}
		n, err := strconv.ParseUint(p, 10, 62)
		if err != nil || len(parts) > 3 {
			return v, errInvalidRequirement
		}
		v.numbers = append(v.numbers, n)
	}
	if isInvalidVersion(s + v.preRelease) {
		return v, errInvalidRequirement
	}
	return v, nil
}

// parseCargoRequirement parses one comparator. Without an operator it is a caret's. Where parts are
// missing, "=" and "<=" match every version with the given parts.
func parseCargoRequirement(s string) (versionrange.Interval, error) {
	if s == "*" {
		return versionrange.AllVersions, nil
	}
	op, text := splitRequirement(s)
	v, err := parseCargoVersion(text)
	if err != nil {
		return versionrange.AllVersions, err
	}
	last := len(v.numbers) - 1
	whole := last == 2
	switch {
	case op == ">=":
		return versionrange.AtLeast(v.String()), nil
	case op == "<":
		return versionrange.Below(v.String()), nil
	case op == ">" && whole:
		return versionrange.Above(v.String()), nil
	case op == ">":
		return versionrange.AtLeast(v.nextAfter(last)), nil
	case op == "<=" && whole:
		return versionrange.AtMost(v.String()), nil
	case op == "<=":
		return versionrange.Below(v.nextAfter(last)), nil
	case op == "=" && whole:
		return versionrange.Exactly(v.String()), nil
	case op == "=" || strings.HasSuffix(text, "*"):
		return rangeUpTo(v, last), nil
	case op == "~":
		return rangeUpTo(v, min(last, 1)), nil
	case op == "^" || op == "":
		return rangeUpTo(v, v.caretIndex()), nil
	default:
		return versionrange.AllVersions, errInvalidRequirement
	}
}

// caretIndex returns the part that may not change: the first that is not zero.
func (v cargoVersion) caretIndex() int {
	for i, n := range v.numbers {
		if n != 0 {
			return i
		}
	}
	return len(v.numbers) - 1
}

func rangeUpTo(v cargoVersion, part int) versionrange.Interval {
	return versionrange.Interval{
		Low:  versionrange.Bound{Version: v.String()},
		High: versionrange.Bound{Version: v.nextAfter(part), Excluded: true},
	}
}
