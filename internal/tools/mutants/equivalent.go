package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"strings"
)

// excuse states why a mutant cannot be detected: its code is as correct as the original.
type excuse struct {
	pkg, function, operator, source, reason string
	line                                    int
	used                                    bool
}

func (e *excuse) fits(pkg string, m *mutant) bool {
	return e.pkg == pkg && e.function == m.Function && e.operator == m.Operator && e.source == m.Source
}

// readExcuses reads lines of five fields, separated by tabs: package, function, operator, source,
// reason. Empty lines, and lines that begin with #, are left out.
func readExcuses(r io.Reader) ([]*excuse, error) {
	var all []*excuse
	line := 0
	for s := bufio.NewScanner(r); s.Scan(); {
		line++
		if text := s.Text(); strings.TrimSpace(text) == "" || text[0] == '#' {
			continue
		}
		f := strings.Split(s.Text(), "\t")
		if len(f) != 5 || strings.TrimSpace(f[4]) == "" {
			return nil,
				fmt.Errorf("line %d: want package, function, operator, source and reason with tabs between them", line)
		}
		all = append(all, &excuse{pkg: f[0], function: f[1], operator: f[2], source: f[3], reason: f[4], line: line})
	}
	return all, nil
}

// withoutExcused returns the mutants without an excuse. It fails when an excuse for the package
// matches none of them: then the code has changed, and the reason may have, too.
func withoutExcused(pkg string, mutants []*mutant, excuses []*excuse) ([]*mutant, error) {
	var left []*mutant
next:
	for _, m := range mutants {
		for _, e := range excuses {
			if e.fits(pkg, m) {
				e.used = true
				continue next
			}
		}
		left = append(left, m)
	}
	for _, e := range excuses {
		if e.pkg == pkg && !e.used {
			return nil, fmt.Errorf("equivalent.txt:%d fits no mutant of %s: %s in %s: %s",
				e.line, pkg, e.operator, e.function, e.source)
		}
	}
	return left, nil
}
