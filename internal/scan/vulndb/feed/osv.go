package feed

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/score"
)

// osvRecord is a record in OSV's form (https://ossf.github.io/osv-schema/), which Go, GHSA,
// PyPA, Homebrew and the zips of each ecosystem share.
type osvRecord struct {
	ID        string              `json:"id" yaml:"id"`
	Modified  string              `json:"modified" yaml:"modified"`
	Published string              `json:"published" yaml:"published"`
	Withdrawn string              `json:"withdrawn" yaml:"withdrawn"`
	Aliases   []string            `json:"aliases" yaml:"aliases"`
	Upstream  []string            `json:"upstream" yaml:"upstream"`
	Related   []string            `json:"related" yaml:"related"`
	Summary   lenientString       `json:"summary" yaml:"summary"`
	Severity  []osvSeverity       `json:"severity" yaml:"severity"`
	Affected  []osvAffected       `json:"affected" yaml:"affected"`
	Specific  osvDatabaseSpecific `json:"database_specific" yaml:"database_specific"`

	Details    lenientString `json:"details" yaml:"details"`
	References lenientList   `json:"references" yaml:"references"`
}

type osvSeverity struct {
	Type  string `json:"type" yaml:"type"`
	Score string `json:"score" yaml:"score"`
}

// osvDatabaseSpecific has the source-specific fields of a record.
type osvDatabaseSpecific struct {
	URL               lenientString `json:"url" yaml:"url"`
	Severity          lenientString `json:"severity" yaml:"severity"`
	ReviewStatus      lenientString `json:"review_status" yaml:"review_status"`
	Reviewed          any           `json:"github_reviewed" yaml:"github_reviewed"`
	Informational     any           `json:"informational" yaml:"informational"`
	LastAffectedRange lenientString `json:"last_known_affected_version_range" yaml:"last_known_affected_version_range"`
	CVSS              any           `json:"-" yaml:"-"`
}

// lenientString is a string, or empty for a value of another type.
type lenientString string

// UnmarshalJSON accepts a string and ignores any other value.
func (t *lenientString) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*t = lenientString(s)
	}
	return nil
}

// UnmarshalYAML accepts a string and ignores any other value.
func (t *lenientString) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*t = lenientString(n.Value)
	}
	return nil
}

type osvAffected struct {
	Package struct {
		Name      string `json:"name" yaml:"name"`
		Ecosystem string `json:"ecosystem" yaml:"ecosystem"`
	} `json:"package" yaml:"package"`
	Severity []osvSeverity       `json:"severity" yaml:"severity"`
	Ranges   []osvRange          `json:"ranges" yaml:"ranges"`
	Versions []string            `json:"versions" yaml:"versions"`
	Specific osvDatabaseSpecific `json:"database_specific" yaml:"database_specific"`
	Distro   distroSpecific      `json:"ecosystem_specific" yaml:"-"`
}

// storedEcosystems are those whose advisories are stored.
var storedEcosystems = []vulndb.Ecosystem{
	vulndb.RubyGems, vulndb.PyPI, vulndb.NPM, vulndb.Maven, vulndb.Go, vulndb.Crates, vulndb.Homebrew,
	vulndb.SwiftURL,
}

// sourceByPrefix map the prefix of an ID to its source.
var sourceByPrefix = map[string]vulndb.Source{
	"GO": vulndb.GoVuln, "GHSA": vulndb.GHSA, "PYSEC": vulndb.PyPA, "RUSTSEC": vulndb.RustSec,
	"BREW": vulndb.HomebrewOSV,

	"DEBIAN": vulndb.DebianOSV, "DSA": vulndb.DebianDSA, "DLA": vulndb.DebianDSA,
	"UBUNTU": vulndb.UbuntuOSV, "USN": vulndb.UbuntuUSN, "ALPINE": vulndb.AlpineOSV,
	"RLSA": vulndb.RockyErrata, "RLBA": vulndb.RockyErrata, "RLEA": vulndb.RockyErrata,
	"ALSA": vulndb.AlmaErrata, "ALBA": vulndb.AlmaErrata, "ALEA": vulndb.AlmaErrata,
	"RHSA": vulndb.RedHatErrata, "RHBA": vulndb.RedHatErrata, "RHEA": vulndb.RedHatErrata,
	"SUSE": vulndb.SUSEErrata, "openSUSE": vulndb.SUSEErrata,
}

var cveID = regexp.MustCompile(`^CVE-\d{4}-\d{4,12}$`)

func sourceOf(id string) vulndb.Source {
	prefix, _, _ := strings.Cut(id, "-")
	if s, ok := sourceByPrefix[prefix]; ok {
		return s
	}
	return vulndb.OSV
}

// parseOSV reads a record in JSON or YAML.
func parseOSV(it Item) Record {
	var o osvRecord
	var err error
	if it.Kind == kindOSVYAML {
		err = yaml.Unmarshal(it.Data, &o)
	} else {
		err = json.Unmarshal(it.Data, &o)
	}
	if err == nil && o.ID == "" {
		err = fmt.Errorf("the advisory has no ID")
	}
	if err != nil {
		return unreadableRecord(string(sourceOf(strings.TrimSuffix(path.Base(it.Name), path.Ext(it.Name)))), it.Name,
			shortError(err))
	}
	return o.toRecord()
}

func (o *osvRecord) toRecord() Record {
	source := sourceOf(o.ID)
	r := Record{Feed: string(source), ID: o.ID, Modified: parseTime(cmp.Or(o.Modified, o.Published))}
	switch {
	case o.Withdrawn != "" && !strings.HasPrefix(o.Withdrawn, zeroYear):
		r.Dropped = Withdrawn
		return r
	case o.isInformational():
		r.Dropped = Informational
		return r
	}
	cves, related := o.splitAliases(source)
	switch {
	case len(cves) == 0 && isNotice(o.ID):
		r.Dropped = NoVulnerability
		return r
	case len(cves)*o.countNames() > maxStoredIDs:
		r.addRejection(fmt.Sprintf("it names %d packages with %d vulnerabilities", o.countNames(), len(cves)))
		return r
	}
	o.advisories(&r, source, cves, related)
	o.vulnerabilities(&r, source, cves, related)
	o.descriptions(&r, cves)
	return r
}

// descriptions describes what the record is about, where that can be reported.
func (o *osvRecord) descriptions(r *Record, cves []string) {
	if len(r.Advisories) == 0 {
		return
	}
	if len(cves) == 0 {
		cves = []string{o.ID}
	}
	for _, id := range cves {
		r.addDescription(DescribedByAdvisory, vulndb.Description{
			ID: id, Title: string(o.Summary), Text: string(o.Details), References: referenceURLs(o.References),
		})
	}
}

// isInformational reports whether the record of RustSec is only a notice: no maintainer, unsound
// code.
func (o *osvRecord) isInformational() bool {
	for _, a := range o.Affected {
		if a.Specific.Informational != nil {
			return true
		}
	}
	return o.Specific.Informational != nil
}

// splitAliases splits the other names of a record. "upstream" names the same vulnerability only where a
// source packages upstream software; "related" names another one, but for announcements of
// distributions that have their CVEs nowhere else.
func (o *osvRecord) splitAliases(source vulndb.Source) (cves, related []string) {
	list := append([]string{o.ID}, o.Aliases...)
	if source == vulndb.HomebrewOSV || isDistribution(source) {
		list = append(list, o.Upstream...)
	}
	if isDistribution(source) && !slices.ContainsFunc(list, cveID.MatchString) {
		list = append(list, slices.DeleteFunc(slices.Clone(o.Related),
			func(id string) bool { return !cveID.MatchString(id) })...)
	}
	for _, id := range list {
		switch id = strings.TrimSpace(id); {
		case cveID.MatchString(id):
			cves = append(cves, id)
		case id != "" && id != o.ID:
			related = append(related, id)
		}
	}
	return sortedUnique(cves), sortedUnique(related)
}

func sortedUnique(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// advisories creates one for each package of the record.
func (o *osvRecord) advisories(r *Record, source vulndb.Source, cves, related []string) {
	byName := map[string]int{}
	code := moduleCode{}
	other, empty := 0, 0
	for _, a := range o.Affected {
		eco := storedEcosystem(a.Package.Ecosystem)
		if eco == "" {
			other++
			continue
		}
		if a.Package.Name == "" || strings.Contains(a.Package.Name, "\x00") {
			r.addRejection("a package has no name")
			continue
		}
		if eco == vulndb.SwiftURL {
			a.Package.Name = o.repositoryOf(a.Package.Name)
		}
		before := len(r.Rejected)
		ranges := o.ranges(r, eco, a)
		if len(ranges) == 0 && len(a.Versions) == 0 {
			if len(r.Rejected) == before {
				empty++
			}
			continue
		}
		if eco == vulndb.Go {
			code.add(&a, ranges)
		}
		for _, p := range a.packages(eco, ranges) {
			one := vulndb.Advisory{
				ID: o.ID, Source: source, CVEs: cves, Related: related, Ecosystem: eco, Name: p.name,
				URL: o.recordURL(source),
			}
			key := string(vulndb.AdvisoryKey(one))
			i, ok := byName[key]
			if !ok {
				i = len(r.Advisories)
				byName[key] = i
				r.Advisories = append(r.Advisories, one)
			}
			adv := &r.Advisories[i]
			for _, rg := range p.ranges {
				if !slices.Contains(adv.Ranges, rg) {
					adv.Ranges = append(adv.Ranges, rg)
				}
			}
			adv.Versions = sortedUnique(append(adv.Versions, p.versions...))
			adv.Unconfirmed = o.isUnreviewed() && slices.ContainsFunc(adv.Ranges, hasNoEnd)
		}
	}
	code.addCode(r)
	if len(r.Advisories) == 0 && len(r.Rejected) == 0 {
		r.Dropped = OtherEcosystem
		if other == 0 || empty > 0 {
			r.Dropped = NoVersions
		}
	}
}

// repositoryOf returns the name of a Swift package with the address of its repository. Some records of GHSA have the
// last part alone, and the address as a reference.
func (o *osvRecord) repositoryOf(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, ref := range o.References {
		_, address, ok := strings.Cut(string(ref.URL), "://")
		address = strings.TrimSuffix(strings.TrimSuffix(address, "/"), ".git")
		if ok && ref.Type == "PACKAGE" && strings.EqualFold(path.Base(address), name) {
			return address
		}
	}
	return name
}

func beforeColon(s string) string {
	s, _, _ = strings.Cut(s, ":")
	return s
}

func hasNoEnd(r vulndb.Range) bool { return r.Fixed == "" && r.LastAffected == "" }

// isUnreviewed reports that the source marks the record as not reviewed.
func (o *osvRecord) isUnreviewed() bool {
	return o.Specific.ReviewStatus == "UNREVIEWED" || o.Specific.Reviewed == false
}

// recordURL returns the web page of the record, where that does not follow from its ID.
func (o *osvRecord) recordURL(source vulndb.Source) string {
	if o.Specific.URL != "" && source == vulndb.GoVuln {
		return string(o.Specific.URL)
	}
	return vulndb.RecordURL(source, o.ID)
}

// ranges converts events to intervals.
func (o *osvRecord) ranges(r *Record, eco vulndb.Ecosystem, a osvAffected) []vulndb.Range {
	var out []vulndb.Range
	for _, rg := range a.Ranges {
		if rg.Type != "SEMVER" && rg.Type != "ECOSYSTEM" {
			continue // commits do not identify versions
		}
		if bad := firstInvalidVersion(rg.Events); bad != "" {
			r.addRejection(fmt.Sprintf("%s: invalid version %.60q", a.Package.Name, bad))
			continue
		}
		list := intervals(sortEvents(eco, rg.Events))
		last := cmp.Or(string(a.Specific.LastAffectedRange), string(rg.Specific.LastAffectedRange))
		if n := len(list); n > 0 && hasNoEnd(list[n-1]) {
			closeRange(&list[n-1], last)
		}
		out = append(out, list...)
	}
	return out
}

// closeRange ends a range at the version that GHSA states in another field: "<= 1.2.3" or "< 1.2.3".
func closeRange(r *vulndb.Range, last string) {
	if v, ok := strings.CutPrefix(last, "<="); ok && !isInvalidVersion(strings.TrimSpace(v)) {
		r.LastAffected = strings.TrimSpace(v)
	} else if v, ok := strings.CutPrefix(last, "<"); ok && !isInvalidVersion(strings.TrimSpace(v)) {
		r.Fixed = strings.TrimSpace(v)
	}
}

// firstInvalidVersion returns the first event whose version is invalid: a list or a sentence.
func firstInvalidVersion(events []osvEvent) string {
	for _, e := range events {
		if v := e.version(); isInvalidVersion(v) {
			return cmp.Or(v, "(none)")
		}
	}
	return ""
}

func isInvalidVersion(v string) bool {
	return v == "" || len(v) > 200 || strings.ContainsAny(v, " \t\r\n,;<>=|\x00") ||
		!strings.ContainsAny(v, "0123456789*") && len(v) > 40
}

// vulnerabilities returns the record's data for each CVE; for its own ID and its other names when
// it has none.
func (o *osvRecord) vulnerabilities(r *Record, source vulndb.Source, cves, related []string) {
	best := o.bestScore(r, source)
	if isDistribution(source) && len(cves) > 1 { // of the worst of them
		best = score.FromWord(string(best.Severity), source)
	}
	ids := cves
	if len(cves) == 0 {
		ids = append([]string{o.ID}, related...)
	}
	for _, id := range ids {
		v := vulndb.Vulnerability{ID: id, Score: best}
		if id != o.ID {
			v.Related = []string{o.ID}
		} else {
			v.Related = related
			v.URL = o.recordURL(source)
		}
		r.Vulnerabilities = append(r.Vulnerabilities, v)
	}
}

// bestScore returns the best of a record's severities: vectors, else words.
func (o *osvRecord) bestScore(r *Record, source vulndb.Source) vulndb.Score {
	best := score.FromWord(string(o.Specific.Severity), source)
	list := slices.Clip(o.Severity)
	for _, a := range o.Affected {
		list = append(list, a.Severity...)
		list = append(list, osvSeverity{Score: string(a.Distro.Urgency)}, osvSeverity{Score: string(a.Distro.Severity)})
	}
	if isDistribution(source) { // "Important: openssl security update"
		list = append(list, osvSeverity{Score: beforeColon(string(o.Summary))})
	}
	for _, s := range list {
		if !strings.HasPrefix(s.Type, "CVSS") {
			if got := score.FromWord(s.Score, source); score.Better(got, best) {
				best = got
			}
			continue
		}
		if s.Score == "" {
			continue
		}
		got, err := score.Parse(s.Score, source)
		if err != nil {
			r.addRejection(shortError(err))
			continue
		}
		if score.Better(got, best) {
			best = got
		}
	}
	return best
}

// shortError returns an error in one line of bounded length.
func shortError(err error) string {
	s := strings.Join(strings.Fields(err.Error()), " ")
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "..."
	}
	return s
}
