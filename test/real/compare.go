package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
)

// result compares a report with the truth.
type result struct {
	packages set // names of those with an expected vulnerability
	expected set // vulnerabilities that are expected
	absent   set // vulnerabilities that must not be reported: they are fixed in each package that names them

	pairs, fixedPairs int // of a package and a vulnerability: expected, and fixed
	errors            []string
}

// maxErrors is how many errors of a comparison are shown.
const maxErrors = 12

func (r *result) fail(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// err returns an error unless the report is right.
func (r *result) err() error {
	if len(r.errors) == 0 {
		return nil
	}
	slices.Sort(r.errors)
	shown := r.errors[:min(len(r.errors), maxErrors)]
	return fmt.Errorf("%d differences:\n    %s", len(r.errors), strings.Join(shown, "\n    "))
}

// String is the evidence.
func (r *result) String() string {
	return fmt.Sprintf("%d vulnerabilities of %d packages reported (%d pairs), %d fixed ones not (%d pairs)",
		len(r.expected), len(r.packages), r.pairs, len(r.absent), r.fixedPairs)
}

// compare compares the matches of packages of the operating system with the truth: those that are expected, each
// once, and no other.
func (s *system) compare(report *api.ScanReport) *result {
	r := &result{packages: set{}, expected: set{}, absent: set{}}
	found := map[string]int{}
	for i := range report.Matches {
		if m := &report.Matches[i]; m.Artifact.Type == string(s.kind) {
			found[m.Artifact.Name+"@"+m.Artifact.Version+" "+m.Vulnerability.ID]++
		}
	}
	for i := range s.packages {
		p := &s.packages[i]
		for id := range p.affected {
			r.pairs++
			r.packages.add(p.name)
			r.expected.add(id)
			key := p.key() + " " + id
			if n := found[key]; n != 1 {
				r.fail("missed: %s is reported %d times", key, n)
			}
			delete(found, key)
		}
		r.fixedPairs += len(p.fixed)
		for id := range p.fixed {
			r.absent.add(id)
		}
	}
	for key := range found {
		r.fail("false: %s", key)
	}
	return r
}

// owned compares the matches of packages of languages that belong to packages of the operating system. What a
// changelog of the owner names is the distribution's to decide, everything else is marked.
func (s *system) owned(report *api.ScanReport) (packages, marked int, err error) {
	owners := map[string]*subject{}
	for i := range s.packages {
		p := &s.packages[i]
		owners[string(s.kind)+"/"+p.key()] = p
	}
	r := &result{}
	names := set{}
	for i := range report.Matches {
		m := &report.Matches[i]
		if catalog.PackageType(m.Artifact.Type).IsOS() {
			continue
		}
		what := fmt.Sprintf("%s %s@%s %s", m.Artifact.Type, m.Artifact.Name, m.Artifact.Version, m.Vulnerability.ID)
		if m.Artifact.Metadata == nil || owners[m.Artifact.Metadata.Owner] == nil {
			r.fail("no owner: %s in %v", what, m.Artifact.Locations)
			continue
		}
		owner := owners[m.Artifact.Metadata.Owner]
		ids := append([]string{m.Vulnerability.ID}, m.Vulnerability.Related...)
		known := func(id string) bool { return owner.fixed[id] || owner.affected[id] }
		switch {
		case slices.ContainsFunc(ids, known):
			r.fail("false: %s, which the changelog of %s names", what, owner.key())
		case m.Vulnerability.DistroPatched != match.DistroPatchedUnknown:
			r.fail("not marked: %s in %s", what, owner.key())
		default:
			names.add(m.Artifact.Type + " " + m.Artifact.Name)
			marked++
		}
	}
	return len(names), marked, r.err()
}

// listed compares the packages that the scanner found with those that the package manager lists.
func (s *system) listed(report *api.ScanPackages) (int, error) {
	line := func(name, version, arch, source, sourceVersion string) string {
		return strings.Join([]string{name, version, arch, source, sourceVersion}, " ")
	}
	want := set{}
	for _, p := range s.packages {
		want.add(line(p.name, p.version, p.arch, p.source, p.sourceVersion))
	}
	r := &result{}
	count := len(want)
	for _, p := range report.Packages {
		if p.Type != string(s.kind) {
			continue
		}
		if p.Metadata == nil {
			r.fail("no metadata: %s", p.Name)
			continue
		}
		l := line(p.Name, p.Version, p.Metadata.Arch, p.Metadata.Source, p.Metadata.SourceVersion)
		if !want[l] {
			r.fail("not installed, or with other fields: %s", l)
		}
		delete(want, l)
	}
	for _, l := range slices.Sorted(maps.Keys(want)) {
		r.fail("not found: %s", l)
	}
	return count, r.err()
}
