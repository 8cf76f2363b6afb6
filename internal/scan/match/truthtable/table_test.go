package truthtable

import (
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// strata are the separately counted groups, with the minimum number of rows of each.
var strata = map[string]int{
	"Go": 40, "PyPI": 40, "RubyGems": 40, "crates": 40, "npm": 40, "Maven": 40, "brew": 40, "macOS app": 40,
	"adversarial": 40, "Debian": 40, "Ubuntu": 25, "Alpine": 25, "RHEL family": 30, "brew names": 40,
	"casks": 30, "runtimes": 30, "Swift": 24,
}

func rows(t *testing.T) []Row {
	t.Helper()
	out, err := Rows()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTableIsWhole(t *testing.T) {
	all := rows(t)
	if len(all) < 640 {
		t.Errorf("%d rows, want at least 640", len(all))
	}
	n, seen := map[string]int{}, map[string]int{}
	expected := map[string]map[bool]int{}
	for _, r := range all {
		n[r.Stratum]++
		if expected[r.Stratum] == nil {
			expected[r.Stratum] = map[bool]int{}
		}
		expected[r.Stratum][r.Affected]++
		p := r.Package
		key := strings.Join([]string{string(p.Kind), p.Name, p.Version, p.Distribution, strings.Join(p.BundleIDs,
			" "), strings.Join(p.Locations, " "), r.Vulnerability, map[bool]string{true: "replaced"}[p.Replaced]}, "\t")
		if before := seen[key]; before != 0 {
			t.Errorf("%v is there before, in line %d", &r, before)
		}
		seen[key] = r.Line
		if !slices.Contains(catalog.Kinds, p.Kind) || p.Name == "" || r.Vulnerability == "" || r.Case == "" {
			t.Errorf("%v: a column is empty or unknown", &r)
		}
		if r.Advisory == "" || r.Field == "" || !strings.HasSuffix(r.Reason, ".") {
			t.Errorf("%v does not say why", &r)
		}
		if r.Unconfirmed && !r.Affected {
			t.Errorf("%v: what is not affected cannot be unconfirmed", &r)
		}
	}
	for stratum, least := range strata {
		if n[stratum] < least {
			t.Errorf("%s: %d rows, want at least %d", stratum, n[stratum], least)
		}
		if expected[stratum][true] < 10 || expected[stratum][false] < 10 {
			t.Errorf("%s: %v, want at least ten of each", stratum, expected[stratum])
		}
	}
	for stratum := range n {
		if strata[stratum] == 0 {
			t.Errorf("unknown stratum %q", stratum)
		}
	}
}
