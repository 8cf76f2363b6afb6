package feed

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/versionrange"
)

// holds reports whether ranges contain a version, as a matcher would.
func holds(order versionrange.CompareFunc, ranges []vulndb.Range, v string) bool {
	for _, r := range ranges {
		if r.Introduced != "" {
			if c := order(v, r.Introduced); c < 0 || c == 0 && r.IntroducedOpen {
				continue
			}
		}
		if r.Fixed != "" && order(v, r.Fixed) >= 0 || r.LastAffected != "" && order(v, r.LastAffected) > 0 {
			continue
		}
		return true
	}
	return false
}

func TestRubyRequirements(t *testing.T) {
	for _, c := range []struct {
		good         []string
		affected, ok string // versions
	}{
		{[]string{">= 1.2.3"}, "0 1.2.2 1.2.3.rc1", "1.2.3 1.2.3.1 1.3.0.pre 2"},
		{[]string{"> 2.0"}, "1 2.0 2.0.0 2.0.rc1", "2.0.1 2.1.pre 3"},
		{[]string{"~> 1.2.6, >= 1.2.6.2", "< 1.0"}, "1.0 1.2.6.1 1.3.0.pre1 1.3 2", "0.9 1.0.rc1 1.2.6.2 1.2.7 1.2.99"},
		{[]string{"~> 1"}, "0.9 2.0.0.beta 2 1.rc1", "1 1.0 1.99"},
		{[]string{"~> 3.1.0.rc5"}, "3.1.0.rc4 3.2 3.2.0.pre", "3.1.0.rc5 3.1.0 3.1.9"},
		{[]string{"~> 1.0.0.rc1.1"}, "1.0.0.rc1 1.1.0.alpha", "1.0.0.rc1.1 1.0.0.rc2 1.0.9"},
		{[]string{"= 1.4"}, "1.3 1.4.1 1.4.rc1", "1.4 1.4.0"},
		{[]string{"<= 1.4", ">= 2"}, "1.4.1 1.9 2.0.rc1", "1.4 1.4.0 1.4.pre 2"},
		{[]string{">= 2.0.0-rc1"}, "2.0.0.pre.alpha 1.9", "2.0.0.pre.rc1 2.0.0"},
		{nil, "0 1 999", ""},
		{[]string{">= 0"}, "", "0 1"},
	} {
		ranges, err := affectedRanges(compareGemVersions, parseGemRequirement, c.good)
		check(t, err)
		for v := range strings.FieldsSeq(c.affected) {
			if !holds(compareGemVersions, ranges, v) {
				t.Errorf("%q leaves %v, which does not hold %s", c.good, ranges, v)
			}
		}
		for v := range strings.FieldsSeq(c.ok) {
			if holds(compareGemVersions, ranges, v) {
				t.Errorf("%q leaves %v, which holds %s", c.good, ranges, v)
			}
		}
	}
	for _, bad := range []string{"", "1 2", ">= ", "~> x", "!= 1", ">= 1.2 or so", "~> 1.!.2"} {
		if _, err := affectedRanges(compareGemVersions, parseGemRequirement, []string{bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestCargoRequirements(t *testing.T) {
	for _, c := range []struct{ good, affected, ok string }{
		{">= 0.4.2", "0.4.1 0.4.2-rc.1", "0.4.2 0.5.0-alpha 1.0.0"},
		{"^1.7.5", "1.7.4 2.0.0-alpha 2.0.0", "1.7.5 1.99.0"},
		{"^0.24.3", "0.24.2 0.25.0-alpha.1", "0.24.3 0.24.99"},
		{"^0.0.3", "0.0.2 0.0.4 0.0.4-a", "0.0.3"},
		{"1.2", "1.1.9 2.0.0-a", "1.2.0 1.9.9"},
		{"~1.2", "1.1.9 1.3.0-a", "1.2.0 1.2.9"},
		{"~1", "0.9.0 2.0.0-a", "1.0.0 1.9.0"},
		{"=1.2", "1.1.9 1.3.0", "1.2.0 1.2.7"},
		{"= 1.2.3", "1.2.2 1.2.4 1.2.3-a", "1.2.3"},
		{"> 1.2", "1.2.9", "1.3.0 1.3.0-a"},
		{"<= 1.2", "1.3.0 1.3.0-a", "1.2.9 0.1.0"},
		{">= 0.44.6, < 0.45.0-alpha.1", "0.44.5 0.45.0-alpha.1 0.45.0", "0.44.6 0.44.9"},
		{"1.*", "0.9.0 2.0.0", "1.0.0 1.5.0"},
		{"*", "", "0.0.1 7.0.0"},
	} {
		ranges, err := affectedRanges(compareCargoVersions, parseCargoRequirement, []string{c.good})
		check(t, err)
		for v := range strings.FieldsSeq(c.affected) {
			if !holds(compareCargoVersions, ranges, v) {
				t.Errorf("%q leaves %v, which does not hold %s", c.good, ranges, v)
			}
		}
		for v := range strings.FieldsSeq(c.ok) {
			if holds(compareCargoVersions, ranges, v) {
				t.Errorf("%q leaves %v, which holds %s", c.good, ranges, v)
			}
		}
	}
	for _, bad := range []string{"", "x", ">= one", "1.2.3.4", "1.*.2", ">=1.2.3 <2"} {
		if _, err := affectedRanges(compareCargoVersions, parseCargoRequirement, []string{bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestComplementIsTheOpposite tries random requirements with every version near them.
func TestComplementIsTheOpposite(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	version := func() string { return fmt.Sprintf("%d.%d.%d", rng.IntN(3), rng.IntN(3), rng.IntN(3)) }
	var all []string
	for i := range 27 {
		v := fmt.Sprintf("%d.%d.%d", i/9, i/3%3, i%3)
		all = append(all, v+"-a", v)
	}
	for range 400 {
		var good []string
		for range 1 + rng.IntN(3) {
			req := []string{">=", ">", "<", "<=", "=", "^", "~"}[rng.IntN(7)] + version()
			if rng.IntN(3) == 0 {
				req += ", <" + version()
			}
			good = append(good, req)
		}
		ranges, err := affectedRanges(compareCargoVersions, parseCargoRequirement, good)
		check(t, err)
		for _, v := range all {
			want := true
			for _, req := range good {
				inside := true
				for part := range strings.SplitSeq(req, ",") {
					i, err := parseCargoRequirement(strings.TrimSpace(part))
					check(t, err)
					inside = inside && holds(compareCargoVersions, versionrange.Ranges([]versionrange.Interval{i}), v)
				}
				want = want && !inside
			}
			if got := holds(compareCargoVersions, ranges, v); got != want {
				t.Fatalf("%q leaves %v; %s: %t, want %t", good, ranges, v, got, want)
			}
		}
	}
}

func TestEventsOfOSV(t *testing.T) {
	e := func(s string) (list []osvEvent) {
		for f := range strings.FieldsSeq(s) {
			switch v := f[1:]; f[0] {
			case 'i':
				list = append(list, osvEvent{Introduced: v})
			case 'f':
				list = append(list, osvEvent{Fixed: v})
			case 'l':
				list = append(list, osvEvent{LastAffected: v})
			case 'm':
				list = append(list, osvEvent{Limit: v})
			}
		}
		return list
	}
	for _, c := range []struct{ events, want string }{
		{"i0 f1.0", "[,1.0)"},
		{"i0", "[,)"},
		{"i1.0 f1.5 i2.0", "[1.0,1.5) [2.0,)"},
		{"i2.0 f2.5 i1.0 f1.5", "[1.0,1.5) [2.0,2.5)"},
		{"i0 f1.0 f0.9", "[,0.9)"},
		{"i0 i0.5 f1.0", "[,1.0)"},
		{"i1.0 l1.9", "[1.0,1.9]"},
		{"i0 m*", "[,)"},
		{"i0 m2.0", "[,2.0)"},
		{"f1.0", ""},
		{"i0 f1.0 i1.0 f2.0", "[,1.0) [1.0,2.0)"},
	} {
		var got []string
		for _, r := range intervals(sortEvents(vulndb.PyPI, e(c.events))) {
			end := r.Fixed + ")"
			if r.LastAffected != "" {
				end = r.LastAffected + "]"
			}
			got = append(got, "["+r.Introduced+","+end)
		}
		if d := cmp.Diff(c.want, strings.Join(got, " ")); d != "" {
			t.Errorf("%s: %s", c.events, d)
		}
	}
}
