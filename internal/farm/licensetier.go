package farm

import "slices"

// Tier is how much of the program a license opens. The zero value is none.
type Tier string

// The tiers, as clients see them in the status.
const (
	TierBasic          Tier = "basic"
	TierEnterprise     Tier = "enterprise"
	TierEnterprisePlus Tier = "enterprise plus"
)

// Tiers lists them, the least first.
var Tiers = []Tier{TierBasic, TierEnterprise, TierEnterprisePlus}

// Known reports whether the tier exists.
func (t Tier) Known() bool { return slices.Contains(Tiers, t) }

// Covers reports whether what needs a tier is open at this one. No tier covers nothing,
// and needing none is covered by all.
func (t Tier) Covers(need Tier) bool {
	return slices.Index(Tiers, t) >= slices.Index(Tiers, need)
}
