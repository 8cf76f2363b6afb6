package feed

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/score"
)

const (
	feedNVD      = "nvd"
	feedOverride = "nvd-overrides"

	nvdSourceID  = "nvd@nist.gov"
	cisaSourceID = "134c704f-9b21-4f2e-91b3-4a467353bcc0"
)

// nvdItem is one element of a feed of NVD's API 2.0, and, with its annotation, a file of
// the overrides, which have the same form.
type nvdItem struct {
	Annotation struct {
		ID       string `json:"cve_id"`
		Modified string `json:"modified"`
	} `json:"_annotation"`
	CVE nvdRecord `json:"cve"`
}

type nvdRecord struct {
	ID             string             `json:"id"`
	Status         string             `json:"vulnStatus"`
	Modified       string             `json:"lastModified"`
	ExploitAdd     string             `json:"cisaExploitAdd"`
	Metrics        nvdMetrics         `json:"metrics"`
	Configurations []cpeConfiguration `json:"configurations"`
	Descriptions   lenientTexts       `json:"descriptions"`
	References     lenientList        `json:"references"`
}

type nvdMetrics struct {
	V40 []nvdMetric `json:"cvssMetricV40"`
	V31 []nvdMetric `json:"cvssMetricV31"`
	V30 []nvdMetric `json:"cvssMetricV30"`
	V2  []nvdMetric `json:"cvssMetricV2"`
}

type nvdMetric struct {
	Source string    `json:"source"`
	Data   cvssScore `json:"cvssData"`
}

// cvssScore is a score as NVD and CVE records write it.
type cvssScore struct {
	Version string  `json:"version"`
	Vector  string  `json:"vectorString"`
	Base    float64 `json:"baseScore"`
}

// score computes the score of the vector; the stated number counts only without one.
func (c cvssScore) score(from vulndb.Source) (vulndb.Score, error) {
	if c.Vector != "" {
		return score.Parse(c.Vector, from)
	}
	if c.Base == 0 {
		return vulndb.Score{}, errors.New("a score has neither a vector nor a base score")
	}
	return score.FromNumber(c.Base, c.Version, from)
}

func parseNVD(it Item) Record {
	var n nvdItem
	if err := json.Unmarshal(it.Data, &n); err != nil {
		return unreadableRecord(feedNVD, it.Name, shortError(err))
	}
	return n.toRecord(feedNVD, RankNVD)
}

func parseOverride(it Item) Record {
	var n nvdItem
	if err := json.Unmarshal(it.Data, &n); err != nil {
		return unreadableRecord(feedOverride, it.Name, shortError(err))
	}
	n.CVE.ID = cmp.Or(n.Annotation.ID, n.CVE.ID)
	n.CVE.Modified = cmp.Or(n.Annotation.Modified, n.CVE.Modified)
	return n.toRecord(feedOverride, RankOverride)
}

func (n *nvdItem) toRecord(feed string, rank int) Record {
	c := &n.CVE
	r := Record{Feed: feed, ID: c.ID, Modified: parseTime(c.Modified)}
	if !cveID.MatchString(c.ID) {
		r.addRejection("it has no CVE id")
		return r
	}
	v := vulndb.Vulnerability{ID: c.ID}
	if strings.EqualFold(c.Status, "Rejected") {
		v.Rejected = true
		r.Vulnerabilities = []vulndb.Vulnerability{v}
		return r
	}
	v.Score = c.Metrics.bestScore(&r)
	if t := parseTime(c.ExploitAdd); !t.IsZero() {
		v.Exploited, v.ExploitedSince = true, t
	}
	r.Vulnerabilities = []vulndb.Vulnerability{v}
	r.addConfigurations(c.ID, rank, vulndb.NVD, c.Configurations)
	r.addDescription(DescribedByNVD, vulndb.Description{
		ID: c.ID, Text: englishText(c.Descriptions), References: referenceURLs(c.References),
	})
	return r
}

func (m *nvdMetrics) bestScore(r *Record) vulndb.Score {
	best := vulndb.Score{Severity: vulndb.Unknown}
	for _, list := range [][]nvdMetric{m.V31, m.V30, m.V40, m.V2} {
		for _, x := range list {
			s, err := x.Data.score(scoreSource(x.Source))
			if err != nil {
				r.addRejection(shortError(err))
				continue
			}
			if score.Better(s, best) {
				best = s
			}
		}
	}
	return best
}

// scoreSource returns the source of a score in NVD.
func scoreSource(source string) vulndb.Source {
	switch source {
	case nvdSourceID:
		return vulndb.NVD
	case cisaSourceID:
		return vulndb.ADP
	default:
		return vulndb.CNA
	}
}
