package match_test

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Every version that the feeds name as a bound can be compared, and has the expected relation to
// its range: the first version is inside, the fix is not.
func TestRealBounds(t *testing.T) {
	db := realDatabase(t)
	bounds, odd := 0, 0
	for a, err := range db.AllAdvisories() {
		if err != nil {
			t.Fatal(err)
		}
		if a.Ecosystem == vulndb.Rubies && (a.Name == "rbx" || a.Name == "mrubyc") {
			continue // neither a runtime that is found, nor a formula
		}
		one := a
		one.CVEs, one.Versions, one.Platform = nil, nil, ""
		for _, r := range a.Ranges {
			one.Ranges = []vulndb.Range{r}
			for version, want := range map[string]bool{
				r.Introduced: !r.IntroducedOpen, r.Fixed: false, r.LastAffected: true,
			} {
				if version == "" || version == "0" {
					continue
				}
				if core, first := strings.CutSuffix(version, "-0"); first &&
					(a.Name == "stdlib" || a.Name == "toolchain") {
					version = core + "-alpha" // no builder of Go uses the suffix "-0"
				}
				bounds++
				m := &memory{advisories: []vulndb.Advisory{one}}
				res := run(t, m, match.Options{}, pkg(kindOf[a.Ecosystem], a.Name, version))
				if len(res.NotEvaluated) > 0 {
					odd++
					t.Logf("%s %s: %v", a.ID, a.Name, res.NotEvaluated[0].Reason)
				}
				if got := len(res.Findings) == 1; got != want && len(res.NotEvaluated) == 0 {
					t.Errorf("%s %s %s in %+v: affected is %v", a.ID, a.Name, version, r, got)
				}
			}
		}
	}
	t.Logf("%d bounds, of which %d cannot be compared", bounds, odd)
	if odd*1000 > bounds {
		t.Errorf("%d of %d bounds cannot be compared", odd, bounds)
	}
}
