package match

import (
	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Reachability reports whether vulnerable code is part of a program. "" is not evaluated.
type Reachability string

// The values, in the order of their weight.
const (
	NotLinked   Reachability = "not linked" // none of the vulnerable functions is part of the program
	LinkUnknown Reachability = "unknown"
	Linked      Reachability = "linked" // at least one is; whether it is ever called is not known
)

// LinkState is the reachability of a vulnerability at one location of a package.
type LinkState struct {
	State     Reachability
	Functions []string // vulnerable ones of the program, or packages of which all are; sorted, not always all
}

// Reachability returns that of a finding: linked where one of its locations is, not linked where all are.
func (f *Finding) Reachability() Reachability {
	var out Reachability
	for _, s := range f.Reachable {
		out = MaxReachability(out, s.State)
	}
	return out
}

// MaxReachability returns the one of two states that has more weight.
func MaxReachability(a, b Reachability) Reachability {
	for _, s := range []Reachability{Linked, LinkUnknown, NotLinked} {
		if a == s || b == s {
			return s
		}
	}
	return ""
}

// InRanges reports whether one of the ranges contains the version of a package. A version that cannot be compared is
// in none.
func InRanges(p *catalog.Package, ranges []vulndb.Range) bool {
	s := ecosystems[p.Kind].versionOf(p)
	for _, r := range ranges {
		if s.err == nil {
			if holds, err := s.containedIn(r); holds && err == nil {
				return true
			}
		}
	}
	return false
}
