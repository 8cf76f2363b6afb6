package farm

import "testing"

func TestTiersCoverThoseBelow(t *testing.T) {
	for i, have := range Tiers {
		for j, need := range Tiers {
			if got := have.Covers(need); got != (i >= j) {
				t.Errorf("%s covers %s: %t", have, need, got)
			}
		}
		if !have.Covers("") || !have.Known() {
			t.Errorf("%s", have)
		}
	}
	for _, unknown := range []Tier{"", "Enterprise", "gold"} {
		if unknown.Known() || unknown.Covers(TierBasic) {
			t.Errorf("%q", unknown)
		}
	}
}
