// Package versionrange computes with sets of versions that consist of intervals, so that "patched
// in these" becomes "affected in those".
//
// It does not compare versions itself: each ecosystem has its own order.
//
// Invariant: the complement of a set contains a version exactly when the set does not, in the given
// order.
package versionrange

import (
	"slices"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Bound is one end of an interval.
type Bound struct {
	Version   string
	Excluded  bool // the version itself is excluded
	Unbounded bool // this side is unbounded
}

// Interval is the set of versions between two bounds.
type Interval struct{ Low, High Bound }

// AllVersions contains every version.
var AllVersions = Interval{Bound{Unbounded: true}, Bound{Unbounded: true}}

// AtLeast contains a version and all later ones.
func AtLeast(v string) Interval { return Interval{Bound{Version: v}, Bound{Unbounded: true}} }

// Above contains the versions after v.
func Above(v string) Interval {
	return Interval{Bound{Version: v, Excluded: true}, Bound{Unbounded: true}}
}

// Below contains the versions before v.
func Below(v string) Interval {
	return Interval{Bound{Unbounded: true}, Bound{Version: v, Excluded: true}}
}

// AtMost contains a version and all earlier ones.
func AtMost(v string) Interval { return Interval{Bound{Unbounded: true}, Bound{Version: v}} }

// Exactly contains one version.
func Exactly(v string) Interval { return Interval{Bound{Version: v}, Bound{Version: v}} }

// CompareFunc compares two versions of an ecosystem.
type CompareFunc func(a, b string) int

// Intersect returns the intersection of all intervals; false when it is empty.
func (o CompareFunc) Intersect(list []Interval) (Interval, bool) {
	out := AllVersions
	for _, i := range list {
		if o.compareLow(i.Low, out.Low) > 0 {
			out.Low = i.Low
		}
		if o.compareHigh(i.High, out.High) < 0 {
			out.High = i.High
		}
	}
	return out, !o.isEmpty(out)
}

// Complement returns the intervals outside of all given ones, lowest first.
func (o CompareFunc) Complement(list []Interval) []Interval {
	list = slices.DeleteFunc(slices.Clone(list), o.isEmpty)
	slices.SortStableFunc(list, func(a, b Interval) int { return o.compareLow(a.Low, b.Low) })
	var out []Interval
	low := Bound{Unbounded: true}
	for _, i := range list {
		if !i.Low.Unbounded {
			gap := Interval{low, Bound{Version: i.Low.Version, Excluded: !i.Low.Excluded}}
			if !o.isEmpty(gap) {
				out = append(out, gap)
			}
		}
		if i.High.Unbounded {
			return out
		}
		next := Bound{Version: i.High.Version, Excluded: !i.High.Excluded}
		if low.Unbounded || o.compareLow(next, low) > 0 {
			low = next
		}
	}
	return append(out, Interval{low, Bound{Unbounded: true}})
}

// Ranges converts the intervals to ranges of an advisory.
func Ranges(list []Interval) []vulndb.Range {
	out := make([]vulndb.Range, 0, len(list))
	for _, i := range list {
		r := vulndb.Range{}
		if !i.Low.Unbounded {
			r.Introduced, r.IntroducedOpen = i.Low.Version, i.Low.Excluded
		}
		switch {
		case i.High.Unbounded:
		case i.High.Excluded:
			r.Fixed = i.High.Version
		default:
			r.LastAffected = i.High.Version
		}
		out = append(out, r)
	}
	return out
}

func (o CompareFunc) compareLow(a, b Bound) int {
	switch {
	case a.Unbounded && b.Unbounded:
		return 0
	case a.Unbounded:
		return -1
	case b.Unbounded:
		return 1
	}
	if c := o(a.Version, b.Version); c != 0 {
		return c
	}
	return excludedOrder(a) - excludedOrder(b)
}

func (o CompareFunc) compareHigh(a, b Bound) int {
	switch {
	case a.Unbounded && b.Unbounded:
		return 0
	case a.Unbounded:
		return 1
	case b.Unbounded:
		return -1
	}
	if c := o(a.Version, b.Version); c != 0 {
		return c
	}
	return excludedOrder(b) - excludedOrder(a)
}

func excludedOrder(b Bound) int {
	if b.Excluded {
		return 1
	}
	return 0
}

func (o CompareFunc) isEmpty(i Interval) bool {
	if i.Low.Unbounded || i.High.Unbounded {
		return false
	}
	c := o(i.Low.Version, i.High.Version)
	return c > 0 || c == 0 && (i.Low.Excluded || i.High.Excluded)
}
