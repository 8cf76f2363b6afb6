package feed

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

const (
	feedKEV  = "kev"
	feedEPSS = "epss"
)

// parseKEV reads an element of CISA's catalog of known exploited vulnerabilities.
func parseKEV(it Item) Record {
	var k struct {
		ID    string `json:"cveID"`
		Added string `json:"dateAdded"`
	}
	if err := json.Unmarshal(it.Data, &k); err != nil {
		return unreadableRecord(feedKEV, it.Name, shortError(err))
	}
	r := Record{Feed: feedKEV, ID: k.ID, Modified: parseTime(k.Added)}
	if !cveID.MatchString(k.ID) {
		r.addRejection("it has no CVE id")
		return r
	}
	r.Vulnerabilities = []vulndb.Vulnerability{{ID: k.ID, Exploited: true, ExploitedSince: r.Modified}}
	return r
}

// parseEPSS reads one line of EPSS: "cve,epss,percentile".
func parseEPSS(line string, date time.Time) Record {
	r := Record{Feed: feedEPSS, ID: line[:min(len(line), 40)], Modified: date}
	parts := strings.Split(strings.TrimSpace(line), ",")
	if len(parts) != 3 || !cveID.MatchString(parts[0]) {
		r.addRejection("a line is not cve,epss,percentile")
		return r
	}
	r.ID = parts[0]
	p, err1 := strconv.ParseFloat(parts[1], 64)
	q, err2 := strconv.ParseFloat(parts[2], 64)
	if err1 != nil || err2 != nil || !(p >= 0 && p <= 1 && q >= 0 && q <= 1) {
		r.addRejection("a probability is not between 0 and 1")
		return r
	}
	r.Vulnerabilities = []vulndb.Vulnerability{{ID: r.ID, EPSS: p, EPSSPercentile: q}}
	return r
}
