package feed

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/google/osv-scalibr/semantic"
	"go.yaml.in/yaml/v3"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/score"
	"github.com/buildyard/buildyard/internal/scan/vulndb/versionrange"
)

// rubyAdvisory is an advisory of ruby-advisory-db. Its versions are requirements of RubyGems that
// match the unaffected versions of a gem, or of an implementation of Ruby.
type rubyAdvisory struct {
	Gem        string        `yaml:"gem"`
	Engine     string        `yaml:"engine"` // an implementation of Ruby, in place of a gem
	Platform   string        `yaml:"platform"`
	CVE        lenientString `yaml:"cve"`
	GHSA       lenientString `yaml:"ghsa"`
	OSVDB      lenientString `yaml:"osvdb"`
	URL        string        `yaml:"url"`
	Title      lenientString `yaml:"title"`
	Text       lenientString `yaml:"description"`
	Date       lenientString `yaml:"date"`
	CVSS2      lenientString `yaml:"cvss_v2"`
	CVSS3      lenientString `yaml:"cvss_v3"`
	CVSS4      lenientString `yaml:"cvss_v4"`
	Patched    []string      `yaml:"patched_versions"`
	Unaffected []string      `yaml:"unaffected_versions"`
}

func parseRubySec(it Item) Record {
	id := strings.TrimSuffix(path.Base(it.Name), path.Ext(it.Name))
	r := Record{Feed: string(vulndb.RubySec), ID: id}
	var a rubyAdvisory
	if err := yaml.Unmarshal(it.Data, &a); err != nil {
		r.addRejection(shortError(err))
		return r
	}
	r.Modified = parseTime(string(a.Date))
	eco, name := vulndb.RubyGems, a.Gem
	if name == "" {
		eco, name = vulndb.Rubies, a.Engine
	}
	if name == "" { // RubyGems itself
		r.Dropped = OtherEcosystem
		return r
	}
	r.ID = name + "/" + id // gems share ids of CVEs
	if eco == vulndb.Rubies {
		r.ID = "engine:" + r.ID
	}
	cves, related := a.ids(id)
	ranges, err := affectedRanges(compareGemVersions, parseGemRequirement, append(a.Patched, a.Unaffected...))
	if err != nil {
		r.addRejection(shortError(err))
		return r
	}
	if len(ranges) == 0 {
		r.Dropped = NoVersions
		return r
	}
	r.Advisories = []vulndb.Advisory{{
		ID: id, Source: vulndb.RubySec, CVEs: cves, Related: related, Ecosystem: eco, Name: name,
		URL: vulndb.RecordURL(vulndb.RubySec, id), Platform: a.Platform, Ranges: ranges,
	}}
	best := a.bestScore(&r)
	ids := cves
	if len(ids) == 0 {
		ids = append([]string{id}, related...)
	}
	for _, name := range ids {
		v := vulndb.Vulnerability{ID: name, Score: best}
		if name == id && len(cves) == 0 {
			v.Related, v.URL = related, a.URL
		} else if name != id {
			v.Related = []string{id}
		}
		r.Vulnerabilities = append(r.Vulnerabilities, v)
		r.addDescription(DescribedByAdvisory, vulndb.Description{
			ID: name, Title: string(a.Title), Text: string(a.Text), References: []string{a.URL},
		})
	}
	return r
}

// ids returns the IDs of an advisory, which are stored without their prefixes.
func (a *rubyAdvisory) ids(id string) (cves, related []string) {
	if c := "CVE-" + string(a.CVE); cveID.MatchString(c) {
		cves = append(cves, c)
	}
	if a.GHSA != "" {
		related = append(related, "GHSA-"+strings.TrimPrefix(string(a.GHSA), "GHSA-"))
	}
	if a.OSVDB != "" {
		related = append(related, "OSVDB-"+string(a.OSVDB))
	}
	var out []string
	for _, r := range sortedUnique(related) {
		if r != id {
			out = append(out, r)
		}
	}
	return cves, out
}

func (a *rubyAdvisory) bestScore(r *Record) vulndb.Score {
	best := vulndb.Score{Severity: vulndb.Unknown}
	for _, c := range []struct {
		number  lenientString
		version string
	}{{a.CVSS3, "3.1"}, {a.CVSS4, "4.0"}, {a.CVSS2, "2.0"}} {
		if c.number == "" {
			continue
		}
		n, err := strconv.ParseFloat(string(c.number), 64)
		if err != nil {
			r.addRejection("a score is not a number")
			continue
		}
		s, err := score.FromNumber(n, c.version, vulndb.RubySec)
		if err != nil {
			r.addRejection(shortError(err))
			continue
		}
		if score.Better(s, best) {
			best = s
		}
	}
	return best
}

// requirementParser parses one requirement of an ecosystem to an interval of versions.
type requirementParser func(string) (versionrange.Interval, error)

// affectedRanges returns the ranges that match none of the requirements. In each, all parts between
// commas must match.
func affectedRanges(order versionrange.CompareFunc, parse requirementParser, good []string) ([]vulndb.Range, error) {
	var sets []versionrange.Interval
	for _, req := range good {
		var parts []versionrange.Interval
		for part := range strings.SplitSeq(req, ",") {
			i, err := parse(strings.TrimSpace(part))
			if err != nil {
				return nil, fmt.Errorf("requirement %.80q: %w", req, err)
			}
			parts = append(parts, i)
		}
		if i, ok := order.Intersect(parts); ok {
			sets = append(sets, i)
		}
	}
	return versionrange.Ranges(order.Complement(sets)), nil
}

var errInvalidRequirement = errors.New("unsupported version requirement")

// splitRequirement splits a requirement into its operator and version.
func splitRequirement(s string) (op, version string) {
	n := strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune("<>=!~^", r) })
	if n < 0 {
		return s, ""
	}
	return s[:n], strings.TrimSpace(s[n:])
}

func compareGemVersions(a, b string) int {
	c, err := semantic.ParseRubyGemsVersion(a).CompareStr(b)
	if err != nil {
		return strings.Compare(a, b)
	}
	return c
}

func parseGemRequirement(s string) (versionrange.Interval, error) {
	op, v := splitRequirement(s)
	v = strings.ReplaceAll(v, "-", ".pre.") // as RubyGems does
	if isInvalidVersion(v) || v[0] < '0' || v[0] > '9' {
		return versionrange.Interval{}, errInvalidRequirement
	}
	switch op {
	case ">=":
		return versionrange.AtLeast(v), nil
	case ">":
		return versionrange.Above(v), nil
	case "<":
		return versionrange.Below(v), nil
	case "<=":
		return versionrange.AtMost(v), nil
	case "=", "":
		return versionrange.Exactly(v), nil
	case "~>":
		bumped, err := pessimisticEnd(v)
		return versionrange.Interval{
			Low: versionrange.Bound{Version: v}, High: versionrange.Bound{Version: bumped, Excluded: true},
		}, err
	default:
		return versionrange.Interval{}, errInvalidRequirement
	}
}

// pessimisticEnd returns the end of "~>": the number before the last is incremented, letters are left
// out. RubyGems compares releases there, so that pre-releases of the end are outside too: the end
// is the first of them.
func pessimisticEnd(v string) (string, error) {
	var numbers []int
	for part := range strings.SplitSeq(v, ".") {
		n, err := strconv.Atoi(part)
		if err != nil { // "1.0.0.rc2.1" and "1.0.0.1rc": a pre-release begins
			if lead := strings.TrimRight(part,
				"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789"); lead != "" {
				return "", errInvalidRequirement
			}
			break
		}
		numbers = append(numbers, n)
	}
	if len(numbers) == 0 {
		return "", errInvalidRequirement
	}
	if len(numbers) > 1 {
		numbers = numbers[:len(numbers)-1]
	}
	numbers[len(numbers)-1]++
	var b strings.Builder
	for _, n := range numbers {
		b.WriteString(strconv.Itoa(n) + ".")
	}
	return b.String() + "a", nil
}
