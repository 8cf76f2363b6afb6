// Package feed reads the records of public sources of vulnerabilities, each in the form in
// which its source publishes it, and says the same of all in the types of vulndb.
//
// It does not join what several sources say, does not sort, and keeps nothing.
//
// Invariant: a record is taken as a whole or named with a reason; a bad one never loses
// another one.
package feed

import (
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Record is what one record of a feed says.
type Record struct {
	Feed     string    // its source, as the database names it
	ID       string    // of the record, which no other of its feed has; may be empty
	Modified time.Time // zero when it does not say

	Advisories []vulndb.Advisory
	// Vulnerabilities are partial: each field that is set is known by this record.
	Vulnerabilities []vulndb.Vulnerability
	Configurations  []Configurations

	Dropped  string      // why nothing is taken though the record is good; "" otherwise
	Rejected []Rejection // what of it is bad
}

// Rejection is a record, or a part of one, that could not be taken.
type Rejection struct {
	Feed   string
	Record string // id, or where it was found
	Reason string
}

// Configurations are all of one vulnerability by one source. Of several such, those with
// the lowest rank count, the others are forgotten.
type Configurations struct {
	ID   string
	Rank int
	List []vulndb.Applicability
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
	Withdrawn     = "withdrawn"
	Informational = "informational"
	OtherKind     = "of another ecosystem"
	NoVersions    = "without versions"
)

func (r *Record) reject(reason string) {
	r.Rejected = append(r.Rejected, Rejection{Feed: r.Feed, Record: r.ID, Reason: reason})
}

// failed is a record that cannot be read at all.
func failed(feed, where, reason string) Record {
	return Record{Feed: feed, ID: where, Rejected: []Rejection{{Feed: feed, Record: where, Reason: reason}}}
}

const firstYear = 1980 // dates before are none

// parseTime reads a date as feeds write them; zero when it is none.
func parseTime(s string) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", time.DateOnly, time.DateTime} {
		if t, err := time.Parse(layout, s); err == nil {
			if t.Year() < firstYear || t.Year() > 9998 {
				return time.Time{}
			}
			return t.UTC()
		}
	}
	return time.Time{}
}
