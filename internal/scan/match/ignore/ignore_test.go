package ignore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/match/ignore"
)

func at(day string) func() time.Time {
	t, err := time.Parse(time.DateTime, day)
	if err != nil {
		panic(err)
	}
	return func() time.Time { return t }
}

// lodash is CVE-2019-10744 as GHSA-jf85-cpcp-j695 has it.
func lodash() *match.Finding {
	f := &match.Finding{Package: catalog.Package{Kind: catalog.NPM, Name: "lodash"}, Advisory: "GHSA-jf85-cpcp-j695"}
	f.Vulnerability.ID, f.Vulnerability.Related = "CVE-2019-10744", []string{"SNYK-JS-LODASH-450202"}
	return f
}

func TestRules(t *testing.T) {
	for _, tc := range []struct {
		rule     ignore.Rule
		location string
		want     bool
	}{
		{ignore.Rule{ID: "CVE-2019-10744"}, "/a", true},
		{ignore.Rule{ID: "cve-2019-10744"}, "", true},
		{ignore.Rule{ID: "GHSA-jf85-cpcp-j695"}, "/a", true},
		{ignore.Rule{ID: "SNYK-JS-LODASH-450202"}, "/a", true},
		{ignore.Rule{ID: "CVE-2019-1074"}, "/a", false},
		{ignore.Rule{Package: "lodash"}, "/a", true},
		{ignore.Rule{Package: "npm/lodash"}, "/a", true},
		{ignore.Rule{Package: "npm/*"}, "/a", true},
		{ignore.Rule{Package: "gem/*"}, "/a", false},
		{ignore.Rule{Package: "dash"}, "/a", false},
		{ignore.Rule{Path: "/srv/**"}, "/srv/a/package.json", true},
		{ignore.Rule{Path: "/srv/**"}, "/opt/a/package.json", false},
		{ignore.Rule{Path: "**"}, "", false},
		{ignore.Rule{ID: "CVE-2019-10744", Package: "gem/*"}, "/a", false},
		{ignore.Rule{ID: "CVE-2019-10744", Package: "lodash", Path: "/a"}, "/a", true},
		{ignore.Rule{ID: "CVE-2019-10744", Expires: "2026-11-30"}, "/a", true},
		{ignore.Rule{ID: "CVE-2019-10744", Expires: "2026-11-29"}, "/a", false},
	} {
		tc.rule.Reason = "because"
		r, err := ignore.Compile([]ignore.Rule{tc.rule}, at("2026-11-30 23:59:59"))
		if err != nil {
			t.Fatal(err)
		}
		if _, got := r.RuleFor(lodash(), tc.location); got != tc.want {
			t.Errorf("%s at %q: %t", tc.rule, tc.location, got)
		}
		if expired := len(r.Warnings()) > 0; expired != (tc.rule.Expires == "2026-11-29") {
			t.Errorf("%+v: warnings %q", tc.rule, r.Warnings())
		}
	}
}

func TestInvalidRules(t *testing.T) {
	for want, rule := range map[string]ignore.Rule{
		"rule 1: it has none of id, package and path":  {Reason: "x"},
		"rule 1: it has no reason: add a line":         {ID: "CVE-1", Reason: " "},
		`rule 1: package: invalid pattern "["`:         {Package: "[", Reason: "x"},
		`rule 1: path: invalid pattern "a//b"`:         {Path: "a//b", Reason: "x"},
		`rule 1: invalid expires "soon": want a date `: {ID: "CVE-1", Reason: "x", Expires: "soon"},
		`rule 1: invalid expires "2026-02-30"`:         {ID: "CVE-1", Reason: "x", Expires: "2026-02-30"},
	} {
		if _, err := ignore.Compile([]ignore.Rule{rule}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := ignore.Compile(make([]ignore.Rule, ignore.MaxRules+1), nil); err == nil {
		t.Error("too many rules were accepted")
	}
	var none *ignore.Rules
	if len(none.List())+len(none.Warnings()) != 0 {
		t.Error("no rules have some")
	}
}

// TestFilter: a path rule removes locations, and the finding with the last of them.
func TestFilter(t *testing.T) {
	r, err := ignore.Compile([]ignore.Rule{{Path: "/test/**", Reason: "test data"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	filter, err := match.NewRuleFilter(match.Rules{Ignore: r})
	if err != nil {
		t.Fatal(err)
	}
	f := lodash()
	f.Package.Locations = []string{"/a", "/test/a", "/test/b"}
	if !filter.Keep(f) || len(f.Package.Locations) != 1 || f.Package.Locations[0] != "/a" {
		t.Errorf("kept %q", f.Package.Locations)
	}
	f.Package.Locations = []string{"/test/a", "/test/b"}
	if filter.Keep(f) {
		t.Error("kept a finding without a location")
	}
	fixed, err := match.NewRuleFilter(match.Rules{OnlyFixed: true})
	if err != nil {
		t.Fatal(err)
	}
	if f = lodash(); fixed.Keep(f) {
		t.Error("kept a finding without a fixed version")
	}
	if f.Fixed = []string{"4.17.12"}; !fixed.Keep(f) {
		t.Error("left out a finding with a fixed version")
	}
}

// TestPythonNames: a rule names a package of Python as its index does, however an installation spells it.
func TestPythonNames(t *testing.T) {
	f := lodash()
	f.Package = catalog.Package{Kind: catalog.Python, Name: "Ruamel.yaml"}
	for pattern, want := range map[string]bool{
		"Ruamel.yaml": true, "ruamel-yaml": true, "python/ruamel-*": true, "ruamel_yaml": false,
		"npm/ruamel-yaml": false,
	} {
		r, err := ignore.Compile([]ignore.Rule{{Package: pattern, Reason: "because"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := r.RuleFor(f, "/a"); got != want {
			t.Errorf("%s: %t", pattern, got)
		}
	}
}
