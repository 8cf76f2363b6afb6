package report

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
)

// A package that its distribution may have patched is marked in every format; a score that is not known
// is in none.
func TestMarks(t *testing.T) {
	r := sample()
	r.Matches[2].Vulnerability.DistroPatched = "unknown"
	for f, want := range map[Format][]string{
		Table: {
			"TYPE  NAME          VERSION  VULNERABILITY   SCORE  SEVERITY  DISTRO-PATCHED\n",
			"npm   odd?[2J?name  1        GHSA-1          -      unknown   unknown\n",
			"npm   lodash        4.17.11  CVE-2019-10744  9.1    critical  -\n",
		},
		JSON:      {`"distro-patched": "unknown"`},
		SARIF:     {`"distro-patched": "unknown"`, `distro-patched: unknown"`, `"security-severity": "9.1"`},
		CycloneDX: {`"name": "buildyard:distro-patched"`, `"value": "unknown npm:odd`},
		SPDX:      {`"comment": "distro-patched: unknown"`},
	} {
		got := write(t, f, options, r)
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("%s: %q is missing in\n%s", f, text, got)
			}
		}
		if f == SARIF && strings.Contains(got, `"security-severity": "0.0"`) {
			t.Errorf("an unknown score is written as the lowest one:\n%s", got)
		}
		r := sample()
		if got := write(t, f, options, r); strings.Contains(strings.ToLower(got), "distro-patched") {
			t.Errorf("%s: a mark without a reason:\n%s", f, got)
		}
	}
}

// A table names what has no advisories, and does not report that nothing was found.
func TestTableWithoutAdvisories(t *testing.T) {
	r := sample()
	r.Coverage.NoAdvisories = []api.ScanNoAdvisories{
		{
			Type: "apk", Distribution: "alpine:3.20", Packages: 214,
			Message: "no advisories for alpine:3.20: 214 packages",
		},
		{Type: "npm", Packages: 1, Message: "no advisories for npm: 1 package"},
	}
	const lines = "No advisories for alpine:3.20: 214 packages\nNo advisories for npm: 1 package\n"
	if got := write(t, Table, options, r); !strings.HasSuffix(got, "unknown\n\n"+lines) {
		t.Errorf("got\n%s", got)
	}
	r.Matches = nil
	if got := write(t, Table, options, r); got != lines {
		t.Errorf("got\n%s", got)
	}
}

// A scan that is partial only because the database has no advisories says that.
func TestReasonOfPartialScans(t *testing.T) {
	const read = "files that may contain packages could not be read"
	none := []api.ScanNoAdvisories{{Message: "no advisories for debian:13: 2 packages"}}
	for want, c := range map[string]api.ScanCoverage{
		"scan partial: " + none[0].Message:               {NoAdvisories: none},
		"scan partial: " + read:                          {Unreads: 1},
		"scan partial: " + read + "; " + none[0].Message: {Unreads: 1, NoAdvisories: none},
	} {
		if got := partialReason(c); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		r := sample()
		r.Coverage = c
		r.Coverage.Partial = true
		for _, format := range []Format{JUnit, GitLab} {
			if text := write(t, format, Options{}, r); !strings.Contains(text, want) {
				t.Errorf("%s: no %q in %s", format, want, text)
			}
		}
	}
}
