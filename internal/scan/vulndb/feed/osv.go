package feed

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/google/osv-scalibr/semantic"
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
	Severity  []osvSeverity       `json:"severity" yaml:"severity"`
	Affected  []osvAffected       `json:"affected" yaml:"affected"`
	Specific  osvDatabaseSpecific `json:"database_specific" yaml:"database_specific"`
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
}

type osvRange struct {
	Type     string              `json:"type" yaml:"type"`
	Events   []osvEvent          `json:"events" yaml:"events"`
	Specific osvDatabaseSpecific `json:"database_specific" yaml:"database_specific"`
}

type osvEvent struct {
	Introduced   string `json:"introduced" yaml:"introduced"`
	Fixed        string `json:"fixed" yaml:"fixed"`
	LastAffected string `json:"last_affected" yaml:"last_affected"`
	Limit        string `json:"limit" yaml:"limit"`
}

// version returns the version of an event.
func (e osvEvent) version() string {
	return cmp.Or(e.Introduced, e.Fixed, e.LastAffected, e.Limit)
}

// storedEcosystems are those whose advisories are stored.
var storedEcosystems = []vulndb.Ecosystem{
	vulndb.RubyGems, vulndb.PyPI, vulndb.NPM, vulndb.Maven, vulndb.Go, vulndb.Crates, vulndb.Homebrew,
}

// sourceByPrefix map the prefix of an ID to its source.
var sourceByPrefix = map[string]vulndb.Source{
	"GO": vulndb.GoVuln, "GHSA": vulndb.GHSA, "PYSEC": vulndb.PyPA, "RUSTSEC": vulndb.RustSec,
	"BREW": vulndb.HomebrewOSV,
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
	case o.Withdrawn != "":
		r.Dropped = Withdrawn
		return r
	case o.isInformational():
		r.Dropped = Informational
		return r
	}
	cves, related := o.splitAliases(source)
	o.advisories(&r, source, cves, related)
	o.vulnerabilities(&r, source, cves, related)
	return r
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

// splitAliases splits the other names of a record. "related" names another vulnerability; "upstream" names
// the same one only where a source packages upstream software.
func (o *osvRecord) splitAliases(source vulndb.Source) (cves, related []string) {
	list := append([]string{o.ID}, o.Aliases...)
	if source == vulndb.HomebrewOSV {
		list = append(list, o.Upstream...)
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
	other, empty := 0, 0
	for _, a := range o.Affected {
		eco := vulndb.Ecosystem(beforeColon(a.Package.Ecosystem))
		if !slices.Contains(storedEcosystems, eco) {
			other++
			continue
		}
		if a.Package.Name == "" || strings.Contains(a.Package.Name, "\x00") {
			r.addRejection("a package has no name")
			continue
		}
		before := len(r.Rejected)
		ranges := o.ranges(r, eco, a)
		if len(ranges) == 0 && len(a.Versions) == 0 {
			if len(r.Rejected) == before {
				empty++
			}
			continue
		}
		key := string(eco) + "\x00" + vulndb.PackageKey(eco, a.Package.Name)
		i, ok := byName[key]
		if !ok {
			i = len(r.Advisories)
			byName[key] = i
			r.Advisories = append(r.Advisories, vulndb.Advisory{
				ID: o.ID, Source: source, CVEs: cves, Related: related, Ecosystem: eco, Name: a.Package.Name,
				URL: o.recordURL(source),
			})
		}
		adv := &r.Advisories[i]
		for _, rg := range ranges {
			if !slices.Contains(adv.Ranges, rg) {
				adv.Ranges = append(adv.Ranges, rg)
			}
		}
		adv.Versions = sortedUnique(append(adv.Versions, a.Versions...))
		adv.Unconfirmed = o.isUnreviewed() && slices.ContainsFunc(adv.Ranges, hasNoEnd)
	}
	if len(r.Advisories) == 0 && len(r.Rejected) == 0 {
		r.Dropped = OtherEcosystem
		if other == 0 || empty > 0 {
			r.Dropped = NoVersions
		}
	}
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

// sortEvents sorts events in the order of their versions, as OSV's rules of evaluation require;
// where versions cannot be compared, only the event before all versions moves to the front.
func sortEvents(eco vulndb.Ecosystem, events []osvEvent) []osvEvent {
	sorted := slices.Clone(events)
	failed := false
	slices.SortStableFunc(sorted, func(a, b osvEvent) int {
		c, err := compareEvents(eco, a, b)
		failed = failed || err != nil
		return c
	})
	if failed {
		sorted = slices.Clone(events)
		slices.SortStableFunc(sorted, func(a, b osvEvent) int { return cmp.Compare(a.sortRank(), b.sortRank()) })
	}
	return sorted
}

// sortRank returns 0 for the event before all versions, and 1 for others.
func (e osvEvent) sortRank() int {
	if e.Introduced == "0" {
		return 0
	}
	return 1
}

func compareEvents(eco vulndb.Ecosystem, a, b osvEvent) (int, error) {
	if a.sortRank() == 0 || b.sortRank() == 0 {
		return cmp.Compare(a.sortRank(), b.sortRank()), nil
	}
	v, err := semantic.Parse(a.version(), string(eco))
	if err != nil {
		return 0, err
	}
	return v.CompareStr(b.version())
}

// intervals converts sorted events to intervals. Of several ends the first counts; one that is
// written before the beginning of the same version ends that.
func intervals(events []osvEvent) []vulndb.Range {
	var out []vulndb.Range
	inside, early := false, ""
	for _, e := range events {
		switch {
		case !inside && e.Introduced != "" && e.Introduced == early:
			out = append(out, vulndb.Range{Introduced: early, LastAffected: early})
		case e.Introduced != "":
			if !inside {
				v := e.Introduced
				if v == "0" {
					v = ""
				}
				out = append(out, vulndb.Range{Introduced: v})
			}
			inside = true
		case !inside:
			early = e.LastAffected
		case e.Fixed != "":
			out[len(out)-1].Fixed = e.Fixed
			inside = false
		case e.LastAffected != "":
			out[len(out)-1].LastAffected = e.LastAffected
			inside = false
		case e.Limit != "" && e.Limit != "*":
			out[len(out)-1].Fixed = e.Limit
			inside = false
		}
	}
	return out
}

// vulnerabilities returns the record's data for each CVE; for its own ID and its other names when
// it has none.
func (o *osvRecord) vulnerabilities(r *Record, source vulndb.Source, cves, related []string) {
	best := o.bestScore(r, source)
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

// bestScore returns the best of a record's severities.
func (o *osvRecord) bestScore(r *Record, source vulndb.Source) vulndb.Score {
	best := score.FromWord(string(o.Specific.Severity), source)
	list := o.Severity
	for _, a := range o.Affected {
		list = append(list, a.Severity...)
	}
	for _, s := range list {
		if s.Score == "" || !strings.HasPrefix(s.Type, "CVSS") {
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
