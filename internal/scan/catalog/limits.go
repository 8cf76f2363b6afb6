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
	Packages  int   // each name and version of a kind once
	Warnings  int   // and as many directories that were left out
	TextBytes int64 // bytes that packages take
}

// defaultLimits are the limits of a scan. The largest trees in practice reach 20 % of them.
var defaultLimits = Limits{Packages: 500_000, Warnings: 10_000, TextBytes: 512 << 20}

// maxDirs is how many directories of one tree are read.
const maxDirs = 4 << 20

func (l Limits) withDefaults() Limits {
	l.Packages, l.Warnings = cmp.Or(l.Packages, defaultLimits.Packages), cmp.Or(l.Warnings, defaultLimits.Warnings)
	l.TextBytes = cmp.Or(l.TextBytes, defaultLimits.TextBytes)
	return l
}

// Remaining returns the limits of another scan whose result is combined with this one.
func (l Limits) Remaining(r *Result) Limits {
	l = l.withDefaults()
	l.Packages = max(l.Packages-len(r.Packages), 1)
	l.Warnings = max(l.Warnings-len(r.Warnings), 1)
	l.TextBytes = max(l.TextBytes-r.packageBytes, 1)
	return l
}

// boundedSet keeps the first elements, in an order, of all that are added, up to a number and a
// size. The final content does not depend on the order in which they were added.
type boundedSet[T any] struct {
	compare  func(a, b T) int
	size     func(T) int64 // bytes; it may grow while an element is kept
	onDrop   func(T)       // receives elements that are not kept; may be nil
	maxLen   int
	maxBytes int64

	elements     []T
	usedBytes    int64 // bytes of list
	droppedCount int   // how many were not kept
	cutoff       *T    // the first of these: elements after it are dropped
}

// add adds an element, and cuts when the set is a quarter too large.
func (f *boundedSet[T]) add(v T) {
	if f.cutoff != nil && f.compare(v, *f.cutoff) >= 0 {
		f.dropElement(v)
		return
	}
	f.elements = append(f.elements, v)
	f.addGrowth(f.size(v))
}

// addGrowth adds the growth of an element, in bytes.
func (f *boundedSet[T]) addGrowth(by int64) {
	f.usedBytes += by
	if len(f.elements) > f.maxLen+f.maxLen/4 || f.usedBytes > f.maxBytes+f.maxBytes/4 {
		f.trim()
	}
}

// trim drops the excess and returns the rest, in order.
func (f *boundedSet[T]) trim() []T {
	slices.SortFunc(f.elements, f.compare)
	n, used := 0, int64(0)
	for ; n < min(len(f.elements), f.maxLen); n++ {
		size := f.size(f.elements[n])
		if used+size > f.maxBytes {
			break
		}
		used += size
	}
	if n < len(f.elements) {
		end := f.elements[n]
		f.cutoff = &end
		for _, v := range f.elements[n:] {
			f.dropElement(v)
		}
	}
	clear(f.elements[n:])
	f.elements, f.usedBytes = f.elements[:n], used
	return f.elements
}

func (f *boundedSet[T]) dropElement(v T) {
	f.droppedCount++
	if f.onDrop != nil {
		f.onDrop(v)
	}
}

// newWarnings keeps warnings in the order of their paths.
func newWarnings(l Limits) *boundedSet[Warning] {
	return &boundedSet[Warning]{
		compare: func(a, b Warning) int {
			return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
		},
		size:   func(w Warning) int64 { return int64(64 + len(w.Path) + len(w.Message)) },
		maxLen: l.Warnings, maxBytes: l.TextBytes,
	}
}

// omittedWarning returns a warning with the number left out; nil when none were.
func omittedWarning(left int, what string) []Warning {
	if left == 0 {
		return nil
	}
	return []Warning{
		{Path: "/", Message: fmt.Sprintf(
			"the tree exceeds the limits of a scan: %d further %s; scan parts of it separately", left, what)},
	}
}
