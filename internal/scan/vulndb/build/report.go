package build

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/feed"
)

const maxNamedRejections = 1000 // rejections of a source that are named; all are counted

// Report lists what a build used and what it rejected.
type Report struct {
	Info    vulndb.Info
	Sources []SourceReport // sorted by name
	Ignored int            // files that are not feeds
}

// SourceReport is about one source.
type SourceReport struct {
	Name       string
	Date       time.Time // of its newest record
	Records    int       // that were read
	Advisories int       // that were used: one for each package of a record
	Dropped    map[string]int
	Rejected   int              // records, or parts of them, that are bad
	Rejections []feed.Rejection // the first of them, sorted
}

// Print writes the report for users.
func (r *Report) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-14s %-10s %9s %11s %9s  %s\n", "SOURCE", "DATE", "RECORDS", "ADVISORIES", "REJECTED", "DROPPED")
	for _, s := range r.Sources {
		date := "-"
		if !s.Date.IsZero() {
			date = s.Date.Format(time.DateOnly)
		}
		var dropped []string
		for _, why := range slices.Sorted(maps.Keys(s.Dropped)) {
			dropped = append(dropped, fmt.Sprintf("%d %s", s.Dropped[why], why))
		}
		fmt.Fprintf(&b, "%-14s %-10s %9d %11d %9d  %s\n", s.Name, date, s.Records, s.Advisories, s.Rejected,
			strings.Join(dropped, ", "))
	}
	fmt.Fprintf(&b, "%d advisories, %d vulnerabilities, %d applicabilities of products, %s", r.Info.Advisories,
		r.Info.Vulnerabilities, r.Info.Applicabilities, bytesize.Format(r.Info.Size))
	if r.Ignored > 0 {
		fmt.Fprintf(&b, "; %d files were no feeds", r.Ignored)
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// sourceCount counts the records of one source.
type sourceCount struct{ SourceReport }

// sourceCounts has the tallies by source.
type sourceCounts map[string]*sourceCount

func (l sourceCounts) forSource(source string) *sourceCount {
	t := l[source]
	if t == nil {
		t = &sourceCount{SourceReport: SourceReport{Name: source, Dropped: map[string]int{}}}
		l[source] = t
	}
	return t
}

func (l sourceCounts) addRecord(r feed.Record) {
	t := l.forSource(r.Feed)
	t.Records++
	t.Advisories += len(r.Advisories)
	if r.Modified.After(t.Date) {
		t.Date = r.Modified
	}
	if r.Dropped != "" {
		t.Dropped[r.Dropped]++
	}
	for _, x := range r.Rejected {
		t.addRejection(x)
	}
}

// addRejection keeps the first rejections in the order of their names, so that the report does not depend
// on the speed of parsers.
func (t *sourceCount) addRejection(x feed.Rejection) {
	t.Rejected++
	i, _ := slices.BinarySearchFunc(t.Rejections, x, compareRejections)
	if i < maxNamedRejections {
		t.Rejections = slices.Insert(t.Rejections, i, x)
		t.Rejections = t.Rejections[:min(len(t.Rejections), maxNamedRejections)]
	}
}

func compareRejections(a, b feed.Rejection) int {
	return cmp.Or(strings.Compare(a.Record, b.Record), strings.Compare(a.Reason, b.Reason))
}

func (l sourceCounts) sourceReports() []SourceReport {
	var out []SourceReport
	for _, name := range slices.Sorted(maps.Keys(l)) {
		out = append(out, l[name].SourceReport)
	}
	return out
}

func (l sourceCounts) sourceInfos() []vulndb.SourceInfo {
	var out []vulndb.SourceInfo
	for _, s := range l.sourceReports() {
		out = append(out, vulndb.SourceInfo{Name: s.Name, Date: s.Date, Records: s.Records, Rejected: s.Rejected})
	}
	return out
}
