package glob

import "fmt"

// Set is a list of patterns of paths. Nil matches nothing. It is safe for concurrent use.
type Set struct{ patterns []*Pattern }

// NewSet compiles patterns with CompilePath. None is nil.
func NewSet(patterns []string) (*Set, error) {
	switch {
	case len(patterns) == 0:
		return nil, nil
	case len(patterns) > MaxPatterns:
		return nil, fmt.Errorf("%d patterns are more than %d", len(patterns), MaxPatterns)
	}
	s := &Set{patterns: make([]*Pattern, len(patterns))}
	for i, text := range patterns {
		var err error
		if s.patterns[i], err = CompilePath(text); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Match reports whether a pattern matches a path.
func (s *Set) Match(path string) bool {
	if s == nil {
		return false
	}
	for _, p := range s.patterns {
		if p.Match(path) {
			return true
		}
	}
	return false
}
