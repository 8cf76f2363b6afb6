package feed

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/score"
)

const feedCVE = "cve"

// cveRecord is a record in CVE's form 5.x (https://cveproject.github.io/cve-schema/), as
// the CVE list and Vulnrichment publish it.
type cveRecord struct {
	Metadata struct {
		ID      string `json:"cveId"`
		State   string `json:"state"`
		Updated string `json:"dateUpdated"`
	} `json:"cveMetadata"`
	Containers struct {
		CNA cveContainer   `json:"cna"`
		ADP []cveContainer `json:"adp"`
	} `json:"containers"`
}

type cveContainer struct {
	Provider struct {
		Updated string `json:"dateUpdated"`
	} `json:"providerMetadata"`
	Metrics       []cveMetric        `json:"metrics"`
	Applicability []cpeConfiguration `json:"cpeApplicability"`
	Affected      []cveAffected      `json:"affected"`
	Title         lenientString      `json:"title"`
	Descriptions  lenientTexts       `json:"descriptions"`
	References    lenientList        `json:"references"`
}

type cveMetric struct {
	V40   *cvssScore `json:"cvssV4_0"`
	V31   *cvssScore `json:"cvssV3_1"`
	V30   *cvssScore `json:"cvssV3_0"`
	V2    *cvssScore `json:"cvssV2_0"`
	Other cveOther   `json:"other"`
}

// cveOther is a metric other than a score: that a vulnerability is exploited.
type cveOther struct {
	Type    string          `json:"type"`
	Content json.RawMessage `json:"content"`
}

type cveAffected struct {
	CPEs     []string     `json:"cpes"`
	Default  string       `json:"defaultStatus"`
	Versions []cveVersion `json:"versions"`
}

type cveVersion struct {
	Version         string            `json:"version"`
	Status          string            `json:"status"`
	Type            string            `json:"versionType"`
	LessThan        string            `json:"lessThan"`
	LessThanOrEqual string            `json:"lessThanOrEqual"`
	Changes         []json.RawMessage `json:"changes"`
}

func parseCVE(it Item) Record {
	var c cveRecord
	if err := json.Unmarshal(it.Data, &c); err != nil {
		return unreadableRecord(feedCVE, it.Name, shortError(err))
	}
	r := Record{Feed: feedCVE, ID: c.Metadata.ID, Modified: parseTime(cmp.Or(c.Metadata.Updated,
		c.Containers.CNA.Provider.Updated))}
	if !cveID.MatchString(r.ID) {
		r.ID = cmp.Or(r.ID, it.Name)
		r.addRejection("it has no CVE id")
		return r
	}
	v := vulndb.Vulnerability{ID: r.ID, Rejected: c.Metadata.State == "REJECTED"}
	if !v.Rejected {
		v.Score = vulndb.Score{Severity: vulndb.Unknown}
		c.Containers.CNA.addTo(&r, &v, vulndb.CNA)
		for i := range c.Containers.ADP {
			c.Containers.ADP[i].addTo(&r, &v, vulndb.ADP)
		}
	}
	r.Vulnerabilities = []vulndb.Vulnerability{v}
	if cna := &c.Containers.CNA; !v.Rejected {
		r.addDescription(DescribedByCVE, vulndb.Description{
			ID: r.ID, Title: string(cna.Title), Text: englishText(cna.Descriptions),
			References: referenceURLs(cna.References),
		})
	}
	return r
}

// addTo reads one container. CPEs of CNA and ADP are kept together: they seldom name the same
// product, and an ADP's data is meant to complete the CNA's.
func (c *cveContainer) addTo(r *Record, v *vulndb.Vulnerability, source vulndb.Source) {
	for _, m := range c.Metrics {
		m.addExploited(v)
		for _, x := range []*cvssScore{m.V31, m.V30, m.V40, m.V2} {
			if x == nil || x.Vector == "" && x.Base == 0 {
				continue
			}
			s, err := x.score(source)
			if err != nil {
				r.addRejection(shortError(err))
				continue
			}
			if score.Better(s, v.Score) {
				v.Score = s
			}
		}
	}
	r.addConfigurations(r.ID, RankCVE, source, c.Applicability)
	made := Configurations{ID: r.ID, Rank: RankAffected}
	for _, a := range c.Affected {
		if list := a.criteria(); len(list) > 0 {
			made.List = append(made.List,
				vulndb.Applicability{ID: r.ID, Source: source, Nodes: []vulndb.Node{{Criteria: list}}})
		}
	}
	if len(made.List) > 0 {
		r.Configurations = append(r.Configurations, made)
	}
}

func (m *cveMetric) addExploited(v *vulndb.Vulnerability) {
	if m.Other.Type != "kev" {
		return
	}
	var kev struct {
		Added string `json:"dateAdded"`
	}
	if json.Unmarshal(m.Other.Content, &kev) == nil {
		v.Exploited, v.ExploitedSince = true, parseTime(kev.Added)
	}
}

// criteria creates criteria from the CPEs of a product and its affected versions. Lists whose
// affected versions only follow from an order of versions, and prose, are left out: these records
// are not machine-readable.
func (a *cveAffected) criteria() []vulndb.Criterion {
	var list []vulndb.Criterion
	if a.Default == "affected" {
		return nil
	}
	for _, cpe := range a.CPEs {
		part, _, _, ok := CPEProduct(cpe)
		if !ok || part == "h" {
			continue
		}
		if own := splitCPE(cpe)[5]; own != "*" && own != "-" {
			list = append(list, vulndb.Criterion{CPE: cpe, Vulnerable: true})
			continue
		}
		for _, v := range a.Versions {
			if c, ok := v.criterion(cpe); ok {
				list = append(list, c)
			}
		}
	}
	return list
}

func (v *cveVersion) criterion(cpe string) (vulndb.Criterion, bool) {
	c := vulndb.Criterion{CPE: cpe, Vulnerable: true}
	if v.Status != "affected" || v.Type == "git" || len(v.Changes) > 0 {
		return c, false
	}
	if v.LessThan == "" && v.LessThanOrEqual == "" {
		if isInvalidVersion(v.Version) || !strings.ContainsAny(v.Version, "123456789") {
			return c, false
		}
		c.StartIncluding, c.EndIncluding = v.Version, v.Version
		return c, true
	}
	for _, end := range []string{v.LessThan, v.LessThanOrEqual} {
		if end != "" && (isInvalidVersion(end) || !strings.ContainsAny(end, "0123456789")) {
			return c, false
		}
	}
	c.EndExcluding, c.EndIncluding = v.LessThan, v.LessThanOrEqual
	if v.LessThan != "" {
		c.EndIncluding = ""
	}
	if !isInvalidVersion(v.Version) && strings.ContainsAny(v.Version, "123456789") {
		c.StartIncluding = v.Version
	} else if isInvalidVersion(v.Version) && v.Version != "" {
		return c, false
	}
	return c, true
}
