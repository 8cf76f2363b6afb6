package report

import (
	"strings"
	"testing"
)

// TestReachable: every format with vulnerabilities tells whether programs have the vulnerable code.
func TestReachable(t *testing.T) {
	r := sample()
	for i, state := range []string{"not linked", "linked", "unknown"} {
		r.Matches[i].Vulnerability.Reachable = state
	}
	r.Matches[1].Vulnerability.LinkedFunctions = []string{"a.test/m.F", "a.test/m.T.G"}
	image := r
	image.Source.Type = "vm_image"
	for name, tc := range map[string]struct {
		f    Format
		r    Report
		want []string
		not  string
	}{
		"table": {Table, r, []string{
			"TYPE  NAME          VERSION  VULNERABILITY   SCORE  SEVERITY  REACHABLE\n",
			"npm   lodash        4.17.11  CVE-2019-10744  9.1    critical  not linked\n",
			"npm   lodash        4.17.11  CVE-2019-10744  9.1    critical  linked\n",
			"npm   odd?[2J?name  1        GHSA-1          -      unknown   unknown\n",
		}, ""},
		"JSON": {JSON, r, []string{
			`"reachable": "not linked"`, `"reachable": "linked",` + "\n        " + `"linked-functions": [`,
			`"a.test/m.T.G"`, `"reachable": "unknown"`,
		}, ""},
		"SARIF": {SARIF, r, []string{
			`"reachable": "not linked"`, `"linked-functions": [`, `; reachable: linked"`, `"reachable": "unknown"`,
		}, ""},
		"CycloneDX": {CycloneDX, r, []string{
			`"name": "buildyard:reachable"`, `"value": "not linked npm:lodash@4.17.11 /a/package.json"`,
			`"value": "linked npm:lodash@4.17.11 /b/package.json"`,
		}, ""},
		"GitLab": {GitLab, r, []string{`"value": "not linked"`, `"value": "linked"`}, ""},
		"GitLab of an image": {GitLab, image, []string{ // where locations are one, the linked one counts
			`"name": "Reachable",` + "\n          " + `"type": "text",` + "\n          " + `"value": "linked"`,
		}, `"value": "not linked"`},
		"JUnit": {JUnit, r, []string{"reachable: not linked", "reachable: linked (a.test/m.F, a.test/m.T.G)"}, ""},
	} {
		got := write(t, tc.f, options, tc.r)
		for _, text := range tc.want {
			if !strings.Contains(got, text) {
				t.Errorf("%s: %q is missing in\n%s", name, text, got)
			}
		}
		if tc.not != "" && strings.Contains(got, tc.not) {
			t.Errorf("%s: %q is in\n%s", name, tc.not, got)
		}
		if plain := write(t, tc.f, options, sample()); strings.Contains(strings.ToLower(plain), "reachable") {
			t.Errorf("%s: of packages without programs:\n%s", name, plain)
		}
	}
}

// TestTableOfUnknown: the column is shown only when some program decided.
func TestTableOfUnknown(t *testing.T) {
	r := sample()
	r.Matches[0].Vulnerability.Reachable = "unknown"
	if got := write(t, Table, options, r); strings.Contains(got, "REACHABLE") {
		t.Error(got)
	}
	columns, err := ParseColumns("nr")
	if err != nil {
		t.Fatal(err)
	}
	o := options
	o.Columns = columns
	if got := write(t, Table, o, r); !strings.Contains(got, "lodash        unknown\n") {
		t.Error(got)
	}
}
