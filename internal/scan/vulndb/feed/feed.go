// Package feed reads the records of public vulnerability sources, each in the format of its source,
// and converts all to the types of vulndb.
//
// It does not join records of several sources, does not sort, and stores nothing.
//
// Invariant: a record is used as a whole or named with a reason; a bad one never loses another one.
package feed

import (
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Record is the content of one record of a feed.
type Record struct {
	Feed     string    // its source, as the database names it
	ID       string    // of the record, unique in its feed; may be empty
	Modified time.Time // zero when not stated

	Advisories []vulndb.Advisory
	// Vulnerabilities are partial: each field that is set comes from this record.
	Vulnerabilities []vulndb.Vulnerability
	Configurations  []Configurations
	Descriptions    []Description
	Code            []vulndb.AdvisoryCode

	Dropped  string      // why a good record is not used; "" otherwise
	Rejected []Rejection // its bad parts
}

// Rejection is a record, or a part of one, that could not be used.
type Rejection struct {
	Feed   string
	Record string // ID, or where it was found
	Reason string
}

// Configurations are all of one vulnerability by one source. Of several such, those with the lowest
// rank count, the others are dropped.
type Configurations struct {
	ID   string
	Rank int
	List []vulndb.Applicability
}

// Description is what a source writes about a vulnerability, with a rank. The title of the lowest rank counts, the
// text of the highest, and the references of all.
type Description struct {
	Rank int
	vulndb.Description
}

// Ranks of descriptions: advisories have short titles, CVE records and NVD short texts.
const (
	DescribedByAdvisory = iota
	DescribedByCVE
	DescribedByNVD
)

func (r *Record) addDescription(rank int, d vulndb.Description) {
	if d = d.Trimmed(); !d.IsEmpty() {
		r.Descriptions = append(r.Descriptions, Description{rank, d})
	}
}

// Ranks of configurations.
const (
	RankOverride = iota
	RankNVD
	RankCVE      // the CPEs of a CVE record
	RankAffected // made from the list of affected products of a CVE record
)

// Why good records are dropped.
const (
	Withdrawn      = "withdrawn"
	Informational  = "informational"
	OtherEcosystem = "of another ecosystem"
	NoVersions     = "without versions"

	NoVulnerability = "about no vulnerability"
)

func (r *Record) addRejection(reason string) {
	r.Rejected = append(r.Rejected, Rejection{Feed: r.Feed, Record: r.ID, Reason: reason})
}

// unreadableRecord returns a record that cannot be read at all.
func unreadableRecord(feed, where, reason string) Record {
	return Record{Feed: feed, ID: where, Rejected: []Rejection{{Feed: feed, Record: where, Reason: reason}}}
}

const minYear = 1980 // earlier dates are invalid

// parseTime parses a date of a feed; zero when it is invalid.
func parseTime(s string) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", time.DateOnly, time.DateTime} {
		if t, err := time.Parse(layout, s); err == nil {
			if t.Year() < minYear || t.Year() > 9998 {
				return time.Time{}
			}
			return t.UTC()
		}
	}
	return time.Time{}
}
