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
	Version string
	Open    bool // the version itself is excluded
	None    bool // this side is unbounded
}

// Interval is the set of versions between two bounds.
type Interval struct{ Low, High Bound }

// All contains every version.
var All = Interval{Bound{None: true}, Bound{None: true}}

// From contains a version and all later ones.
func From(v string) Interval { return Interval{Bound{Version: v}, Bound{None: true}} }

// Above contains the versions after v.
func Above(v string) Interval { return Interval{Bound{Version: v, Open: true}, Bound{None: true}} }

// Below contains the versions before v.
func Below(v string) Interval { return Interval{Bound{None: true}, Bound{Version: v, Open: true}} }

// UpTo contains a version and all earlier ones.
func UpTo(v string) Interval { return Interval{Bound{None: true}, Bound{Version: v}} }

// Only contains one version.
func Only(v string) Interval { return Interval{Bound{Version: v}, Bound{Version: v}} }

// Order compares two versions of an ecosystem.
type Order func(a, b string) int

// Intersect returns the intersection of all intervals; false when it is empty.
func (o Order) Intersect(list []Interval) (Interval, bool) {
	out := All
	for _, i := range list {
		if o.compareLow(i.Low, out.Low) > 0 {
			out.Low = i.Low
		}
		if o.compareHigh(i.High, out.High) < 0 {
			out.High = i.High
		}
	}
	return out, !o.empty(out)
}

// Complement returns the intervals outside of all given ones, lowest first.
func (o Order) Complement(list []Interval) []Interval {
	list = slices.DeleteFunc(slices.Clone(list), o.empty)
	slices.SortStableFunc(list, func(a, b Interval) int { return o.compareLow(a.Low, b.Low) })
	var out []Interval
	low := Bound{None: true}
	for _, i := range list {
		if !i.Low.None {
			gap := Interval{low, Bound{Version: i.Low.Version, Open: !i.Low.Open}}
			if !o.empty(gap) {
				out = append(out, gap)
			}
		}
		if i.High.None {
			return out
		}
		next := Bound{Version: i.High.Version, Open: !i.High.Open}
		if low.None || o.compareLow(next, low) > 0 {
			low = next
		}
	}
	return append(out, Interval{low, Bound{None: true}})
}

// Ranges converts the intervals to ranges of an advisory.
func Ranges(list []Interval) []vulndb.Range {
	out := make([]vulndb.Range, 0, len(list))
	for _, i := range list {
		r := vulndb.Range{}
		if !i.Low.None {
			r.Introduced, r.IntroducedOpen = i.Low.Version, i.Low.Open
		}
		switch {
		case i.High.None:
		case i.High.Open:
			r.Fixed = i.High.Version
		default:
			r.LastAffected = i.High.Version
		}
		out = append(out, r)
	}
	return out
}

func (o Order) compareLow(a, b Bound) int {
	switch {
	case a.None && b.None:
		return 0
	case a.None:
		return -1
	case b.None:
		return 1
	}
	if c := o(a.Version, b.Version); c != 0 {
		return c
	}
	return open(a) - open(b)
}

func (o Order) compareHigh(a, b Bound) int {
	switch {
	case a.None && b.None:
		return 0
	case a.None:
		return 1
	case b.None:
		return -1
	}
	if c := o(a.Version, b.Version); c != 0 {
		return c
	}
	return open(b) - open(a)
}

func open(b Bound) int {
	if b.Open {
		return 1
	}
	return 0
}

func (o Order) empty(i Interval) bool {
	if i.Low.None || i.High.None {
		return false
	}
	c := o(i.Low.Version, i.High.Version)
	return c > 0 || c == 0 && (i.Low.Open || i.High.Open)
}
