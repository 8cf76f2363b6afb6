package feed

import (
	"cmp"
	"slices"

	"github.com/google/osv-scalibr/semantic"

	"github.com/buildyard/buildyard/internal/scan/match/vercmp"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

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

// isEnd reports whether the event ends an interval.
func (e osvEvent) isEnd() bool { return e.Introduced == "" }

// distributionSchemes are the orders of versions of distributions.
var distributionSchemes = map[vulndb.Ecosystem]vercmp.Scheme{
	vulndb.Debian: vercmp.Deb, vulndb.Ubuntu: vercmp.Deb, vulndb.Alpine: vercmp.APK,
	vulndb.RockyLinux: vercmp.RPM, vulndb.AlmaLinux: vercmp.RPM, vulndb.RedHat: vercmp.RPM,
	vulndb.SUSE: vercmp.RPM, vulndb.OpenSUSE: vercmp.RPM,
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
	same := func(a, b osvEvent) bool { c, err := compareEvents(eco, a, b); return err == nil && c == 0 }
	if failed {
		sorted = slices.Clone(events)
		slices.SortStableFunc(sorted, func(a, b osvEvent) int { return cmp.Compare(a.sortRank(), b.sortRank()) })
		same = func(a, b osvEvent) bool { return a.version() == b.version() }
	}
	orderTies(sorted, same)
	return sorted
}

// orderTies orders events of the same version. The end of an interval precedes the beginning of the next
// one, which begins where that ended (PYSEC-2022-42972, PYSEC-2023-72); the beginning of an interval
// precedes its own end.
func orderTies(events []osvEvent, same func(a, b osvEvent) bool) {
	inside := false
	for len(events) > 0 {
		n := 1
		for n < len(events) && same(events[0], events[n]) {
			n++
		}
		tied := events[:n]
		alternate(tied, inside)
		inside = !tied[n-1].isEnd()
		events = events[n:]
	}
}

// alternate orders events of one version so that ends and beginnings alternate, as far as there are both: the first
// is an end where an interval is open.
func alternate(tied []osvEvent, endFirst bool) {
	var ends, begins, out []osvEvent
	for _, e := range tied {
		if e.isEnd() {
			ends = append(ends, e)
		} else {
			begins = append(begins, e)
		}
	}
	next, other := &begins, &ends
	if endFirst {
		next, other = other, next
	}
	for len(*next) > 0 {
		out, *next = append(out, (*next)[0]), (*next)[1:]
		if len(*other) > 0 {
			next, other = other, next
		}
	}
	copy(tied, append(out, *other...))
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
	if scheme, ok := distributionSchemes[eco.Distribution()]; ok {
		return compareVersions(scheme, a.version(), b.version())
	}
	v, err := semantic.Parse(a.version(), string(eco))
	if err != nil {
		return 0, err
	}
	return v.CompareStr(b.version())
}

func compareVersions(scheme vercmp.Scheme, a, b string) (int, error) {
	v, err := vercmp.Parse(scheme, a)
	if err != nil {
		return 0, err
	}
	w, err := vercmp.Parse(scheme, b)
	if err != nil {
		return 0, err
	}
	return v.Compare(w), nil
}

// intervals converts sorted events to intervals. Of several ends the first counts.
func intervals(events []osvEvent) []vulndb.Range {
	var out []vulndb.Range
	inside := false
	for _, e := range events {
		switch {
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
