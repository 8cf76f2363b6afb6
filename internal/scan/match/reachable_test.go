package match_test

import (
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

func states(list ...match.Reachability) match.Finding {
	f := match.Finding{Vulnerability: vulndb.Vulnerability{ID: "CVE-2026-1"}}
	for _, s := range list {
		f.Reachable = append(f.Reachable, match.LinkState{State: s})
	}
	return f
}

func TestReachability(t *testing.T) {
	for _, tc := range []struct {
		finding match.Finding
		want    match.Reachability
	}{
		{states(), ""},
		{states(match.NotLinked, match.NotLinked), match.NotLinked},
		{states(match.NotLinked, match.LinkUnknown), match.LinkUnknown},
		{states(match.NotLinked, match.Linked, match.LinkUnknown), match.Linked},
	} {
		if got := tc.finding.Reachability(); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.finding.Reachable, got, tc.want)
		}
	}
}

// TestFailOnReachable: linked code fails a build whatever the severity. Where it is unknown, that is counted.
func TestFailOnReachable(t *testing.T) {
	high := states(match.NotLinked)
	high.Vulnerability.Score = vulndb.Score{Base: 8, Severity: vulndb.High}
	unconfirmed, patched, unread := states(match.Linked), states(match.LinkUnknown), states(match.LinkUnknown)
	unconfirmed.Unconfirmed, patched.DistroPatched = true, match.DistroPatchedUnknown
	unread.Vulnerability.Score = vulndb.Score{Base: 9.8, Severity: vulndb.Critical}
	linked, unknown := states(match.Linked), states(match.LinkUnknown)
	all := []match.Finding{high, linked, unknown, states(), unconfirmed, patched, unread}
	for on, want := range map[string][2]int{
		"reachable": {1, 2}, "Reachable, high": {3, 1}, "high": {2, 0}, "reachable,low": {3, 1},
	} {
		f, err := match.ParseFailOn(on)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int{len(f.Fails(all)), f.UnknownReachability(all)}; got != want {
			t.Errorf("%s: %v, want %v", on, got, want)
		}
	}
}

func TestInRanges(t *testing.T) {
	ranges := []vulndb.Range{{Fixed: "1.20.11"}, {Introduced: "1.21.0-0", Fixed: "1.21.4"}}
	for _, tc := range []struct {
		name, version string
		want          bool
	}{
		{"stdlib", "1.20.10", true},
		{"stdlib", "1.20.11", false},
		{"stdlib", "1.21rc2", true},
		{"stdlib", "1.21.4", false},
		{"a.test/m", "v1.20.0", true},
		{"a.test/m", "v1.21.4", false},
		{"a.test/m", "none", false},
	} {
		p := catalog.Package{Kind: catalog.Go, Name: tc.name, Version: tc.version}
		if got := match.InRanges(&p, ranges); got != tc.want {
			t.Errorf("%s %s: %t", tc.name, tc.version, got)
		}
	}
}
