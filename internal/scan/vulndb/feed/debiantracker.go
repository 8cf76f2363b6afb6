package feed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/score"
)

// trackerEntry is the state of one vulnerability of one source package in Debian's security tracker
// (https://security-tracker.debian.org/tracker/data/json).
type trackerEntry struct {
	Releases map[string]struct { // by code name
		Status  string        `json:"status"` // resolved, open or undetermined
		Fixed   lenientString `json:"fixed_version"`
		Urgency lenientString `json:"urgency"`
	} `json:"releases"`
}

// debianReleases are the numbers of code names. "sid" has none: it is not a release.
var debianReleases = map[string]string{
	"wheezy": "7", "jessie": "8", "stretch": "9", "buster": "10", "bullseye": "11", "bookworm": "12", "trixie": "13",
	"forky": "14", "duke": "15",
}

// trackerHead matches the beginning of the tracker: a package, a vulnerability.
var trackerHead = regexp.MustCompile(`^\s*\{\s*"[^"]+"\s*:\s*\{\s*"(CVE-\d{4}-|TEMP-)[^"]+"\s*:\s*\{`)

// emitTracker emits each package of the tracker: an object of one field.
func emitTracker(r io.Reader, it Item, emit func(Item) error) error {
	dec := NewDecoder(r)
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("%s: not a JSON object: %w", it.Name, cmpErr(err))
	}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return fmt.Errorf("%s: %w", it.Name, cmpErr(err))
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return fmt.Errorf("%s: %s: %w", it.Name, name, err)
		}
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		data := slices.Concat([]byte("{"), key, []byte(":"), value, []byte("}"))
		if err := emit(Item{Kind: it.Kind, Name: it.Name + "[" + name + "]", Time: it.Time, Data: data}); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("%s: incomplete JSON object: %w", it.Name, err)
	}
	return nil
}

// parseTracker reads a package of the tracker: a record for each vulnerability.
func parseTracker(it Item) []Record {
	feed := string(vulndb.DebianTracker)
	var packages map[string]map[string]trackerEntry
	if err := json.Unmarshal(it.Data, &packages); err != nil {
		return []Record{unreadableRecord(feed, it.Name, shortError(err))}
	}
	var out []Record
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		if name == "" || strings.Contains(name, "\x00") {
			out = append(out, unreadableRecord(feed, it.Name, "a package has no name"))
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(packages[name])) {
			out = append(out, packages[name][id].record(name, id, it.Time))
		}
	}
	return out
}

// record converts an entry. A release that the tracker calls not affected has an advisory without
// versions: it overrules the records of other sources. What is undetermined says nothing.
func (e trackerEntry) record(name, id string, date time.Time) Record {
	r := Record{Feed: string(vulndb.DebianTracker), ID: name + "/" + id}
	if date.Year() >= minYear {
		r.Modified = date.UTC()
	}
	cves := []string(nil)
	switch {
	case cveID.MatchString(id):
		cves = []string{id}
	case !strings.HasPrefix(id, "TEMP-") || strings.Contains(id, "\x00"):
		r.addRejection(fmt.Sprintf("%.60q is not the name of a vulnerability", id))
		return r
	}
	worst := vulndb.Score{Severity: vulndb.Unknown}
	for _, codename := range slices.Sorted(maps.Keys(e.Releases)) {
		number, known := debianReleases[codename]
		if !known {
			continue
		}
		state := e.Releases[codename]
		ranges, err := trackerRanges(state.Status, string(state.Fixed))
		if err != nil {
			if !errors.Is(err, errUndetermined) {
				r.addRejection(codename + ": " + shortError(err))
			}
			continue
		}
		r.Advisories = append(r.Advisories, vulndb.Advisory{
			ID: id, Source: vulndb.DebianTracker, CVEs: cves, Ecosystem: vulndb.Debian + ":" + vulndb.Ecosystem(number),
			Name: name, URL: vulndb.RecordURL(vulndb.DebianTracker, id), Ranges: ranges,
		})
		word := score.FromWord(strings.TrimRight(string(state.Urgency), "*"), vulndb.DebianTracker)
		if score.Better(word, worst) {
			worst = word
		}
	}
	if len(r.Advisories) == 0 {
		if len(r.Rejected) == 0 {
			r.Dropped = NoVersions
		}
		return r
	}
	v := vulndb.Vulnerability{ID: id, Score: worst}
	if len(cves) == 0 {
		v.URL = vulndb.RecordURL(vulndb.DebianTracker, id)
	}
	r.Vulnerabilities = []vulndb.Vulnerability{v}
	return r
}

var errUndetermined = errors.New("not yet evaluated")

// trackerRanges returns the affected versions of a release. The fix "0" is that of a release which
// never had the vulnerability.
func trackerRanges(status, fixed string) ([]vulndb.Range, error) {
	switch {
	case status == "open":
		return []vulndb.Range{{}}, nil
	case status == "resolved" && fixed == "0":
		return nil, nil
	case status == "resolved" && !isInvalidVersion(fixed):
		return []vulndb.Range{{Fixed: fixed}}, nil
	case status == "undetermined":
		return nil, errUndetermined
	}
	return nil, fmt.Errorf("unknown status %.40q with the fixed version %.60q", status, fixed)
}
