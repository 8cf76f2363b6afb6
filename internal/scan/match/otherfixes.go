package match

import (
	"slices"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// otherFixes returns the fixed versions that the other advisories about a vulnerability name for a version that they
// have as affected. It is for findings whose deciding advisory names none.
func (f *findingCollector) otherFixes(s packageVersion, t *advisoryGroup, deciding *vulndb.Advisory) []string {
	var out []string
	if s.err != nil {
		return nil
	}
	for _, a := range slices.Concat(t.deciding, t.overruled) {
		if a == deciding || !mayBeForPlatform(f.pkg, a.Platform) {
			continue
		}
		for _, r := range a.Ranges {
			if holds, err := s.containedIn(r); err == nil && holds && r.Fixed != "" {
				out = append(out, r.Fixed)
			}
		}
	}
	return s.sortVersions(out)
}
