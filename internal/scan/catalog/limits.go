package catalog

import (
	"cmp"
	"fmt"
	"slices"
)

// Limits bound the result of a scan: a hostile tree may name packages without end. The first ones
// in an order are kept, so that equal trees have equal results, and the rest is counted and
// reported in one warning. 0 is the usual limit.
type Limits struct {
	Packages int   // each name and version of a kind once
	Warnings int   // and as many directories that were left out
	Text     int64 // bytes that packages take
}

// usual are the limits of a scan. The largest trees in practice reach 20 % of them.
var usual = Limits{Packages: 500_000, Warnings: 10_000, Text: 512 << 20}

// maxFolders is how many directories of one tree are read.
const maxFolders = 4 << 20

func (l Limits) orUsual() Limits {
	l.Packages, l.Warnings = cmp.Or(l.Packages, usual.Packages), cmp.Or(l.Warnings, usual.Warnings)
	l.Text = cmp.Or(l.Text, usual.Text)
	return l
}

// After returns the limits of another scan whose result is combined with this one.
func (l Limits) After(r *Result) Limits {
	l = l.orUsual()
	l.Packages = max(l.Packages-len(r.Packages), 1)
	l.Warnings = max(l.Warnings-len(r.Warnings), 1)
	l.Text = max(l.Text-r.text, 1)
	return l
}

// boundedSet keeps the first elements, in an order, of all that are added, up to a number and a
// size. The final content does not depend on the order in which they were added.
type boundedSet[T any] struct {
	compare func(a, b T) int
	size    func(T) int64 // bytes; it may grow while an element is kept
	drop    func(T)       // receives elements that are not kept; may be nil
	most    int
	room    int64

	list []T
	used int64 // bytes of list
	left int   // how many were not kept
	end  *T    // the first of these: elements after it are dropped
}

// add adds an element, and cuts when the set is a quarter too large.
func (f *boundedSet[T]) add(v T) {
	if f.end != nil && f.compare(v, *f.end) >= 0 {
		f.without(v)
		return
	}
	f.list = append(f.list, v)
	f.grow(f.size(v))
}

// grow adds the growth of an element, in bytes.
func (f *boundedSet[T]) grow(by int64) {
	f.used += by
	if len(f.list) > f.most+f.most/4 || f.used > f.room+f.room/4 {
		f.cut()
	}
}

// cut drops the excess and returns the rest, in order.
func (f *boundedSet[T]) cut() []T {
	slices.SortFunc(f.list, f.compare)
	n, used := 0, int64(0)
	for ; n < min(len(f.list), f.most); n++ {
		size := f.size(f.list[n])
		if used+size > f.room {
			break
		}
		used += size
	}
	if n < len(f.list) {
		end := f.list[n]
		f.end = &end
		for _, v := range f.list[n:] {
			f.without(v)
		}
	}
	clear(f.list[n:])
	f.list, f.used = f.list[:n], used
	return f.list
}

func (f *boundedSet[T]) without(v T) {
	f.left++
	if f.drop != nil {
		f.drop(v)
	}
}

// newWarnings keeps warnings in the order of their paths.
func newWarnings(l Limits) *boundedSet[Warning] {
	return &boundedSet[Warning]{
		compare: func(a, b Warning) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.What, b.What)) },
		size:    func(w Warning) int64 { return int64(64 + len(w.Path) + len(w.What)) },
		most:    l.Warnings, room: l.Text,
	}
}

// more returns a warning with the number left out; nil when none were.
func more(left int, what string) []Warning {
	if left == 0 {
		return nil
	}
	return []Warning{
		{Path: "/", What: fmt.Sprintf(
			"the tree exceeds the limits of a scan: %d further %s; scan parts of it separately", left, what)},
	}
}
