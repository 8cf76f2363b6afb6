// Package score computes scores from CVSS vectors and decides which of several scores of a
// vulnerability counts.
//
// It reads no feeds, and does not decide whether a score fails a build.
//
// Invariant: a score with a vector has the base score computed from that vector, never one that a
// source states next to it.
package score

import (
	"errors"
	"fmt"
	"strings"

	gocvss20 "github.com/pandatix/go-cvss/20"
	gocvss30 "github.com/pandatix/go-cvss/30"
	gocvss31 "github.com/pandatix/go-cvss/31"
	gocvss40 "github.com/pandatix/go-cvss/40"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

var errInvalidVector = errors.New("not a CVSS vector")

const maxVectorBytes = 512 // bytes of a vector

// Parse computes the base score of a vector of CVSS 2.0, 3.0, 3.1 or 4.0.
func Parse(vector string, from vulndb.Source) (vulndb.Score, error) {
	vector = strings.Trim(strings.TrimSpace(vector), "()/")
	if vector == "" || len(vector) > maxVectorBytes {
		return vulndb.Score{}, errInvalidVector
	}
	version, base, err := computeScore(vector)
	if err != nil {
		return vulndb.Score{}, fmt.Errorf("vector %.60q: %w", vector, err)
	}
	return vulndb.Score{Base: base, Severity: Severity(base, version), Version: version, Vector: vector, Source: from},
		nil
}

func computeScore(vector string) (version string, base float64, err error) {
	switch {
	case strings.HasPrefix(vector, "CVSS:3.1/"):
		v, err := gocvss31.ParseVector(vector)
		if err != nil {
			return "", 0, err
		}
		return "3.1", v.BaseScore(), nil
	case strings.HasPrefix(vector, "CVSS:3.0/"):
		v, err := gocvss30.ParseVector(vector)
		if err != nil {
			return "", 0, err
		}
		return "3.0", v.BaseScore(), nil
	case strings.HasPrefix(vector, "CVSS:4.0/"):
		base, err := baseScoreV4(vector)
		return "4.0", base, err
	case strings.HasPrefix(vector, "AV:"):
		v, err := gocvss20.ParseVector(vector)
		if err != nil {
			return "", 0, err
		}
		return "2.0", v.BaseScore(), nil
	default:
		return "", 0, errInvalidVector
	}
}

// baseScoreV4 drops the other metrics: threat, environment, supplement.
func baseScoreV4(vector string) (float64, error) {
	v, err := gocvss40.ParseVector(vector)
	if err != nil {
		return 0, err
	}
	var b strings.Builder
	b.WriteString("CVSS:4.0")
	for _, m := range []string{"AV", "AC", "AT", "PR", "UI", "VC", "VI", "VA", "SC", "SI", "SA"} {
		s, err := v.Get(m)
		if err != nil {
			return 0, err
		}
		b.WriteString("/" + m + ":" + s)
	}
	if v, err = gocvss40.ParseVector(b.String()); err != nil {
		return 0, err
	}
	return v.Score(), nil
}

// FromNumber returns a score of which only the number is known.
func FromNumber(base float64, version string, from vulndb.Source) (vulndb.Score, error) {
	if !(base >= 0 && base <= 10) {
		return vulndb.Score{}, fmt.Errorf("invalid base score %v: want 0 to 10", base)
	}
	return vulndb.Score{Base: base, Severity: Severity(base, version), Version: version, Source: from}, nil
}

// FromWord returns a score of which only the severity is known. Words for no severity are unknown.
func FromWord(s string, from vulndb.Source) vulndb.Score {
	out := vulndb.Score{Severity: vulndb.Unknown}
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "low", "negligible", "unimportant": // words of Ubuntu and Debian for less than low
		out.Severity = vulndb.Low
	case "medium", "moderate":
		out.Severity = vulndb.Medium
	case "high", "important":
		out.Severity = vulndb.High
	case "critical":
		out.Severity = vulndb.Critical
	default:
		return out
	}
	out.Source = from
	return out
}

// Severity returns the level of a base score; CVSS 2.0 has no critical one.
func Severity(base float64, version string) vulndb.Severity {
	switch {
	case base <= 0:
		return vulndb.Unknown
	case base < 4:
		return vulndb.Low
	case base < 7:
		return vulndb.Medium
	case base < 9 || version == "2.0":
		return vulndb.High
	default:
		return vulndb.Critical
	}
}

const maxSources = 100 // ranks of sources are below

// Ranks of scores: the lowest wins.
const (
	rankNVD31 = iota
	rankNVD30
	rankCNA3
	rankADP3
	rankGHSA3
	rankOther3
	rankV4
	rankV2           = rankV4 + maxSources
	rankNoVersion    = rankV2 + maxSources // a number without a version
	rankSeverityOnly = rankNoVersion + maxSources
	rankUnknown      = rankSeverityOnly + maxSources
)

// sourceOrder orders the sources of otherwise equal scores.
var sourceOrder = map[vulndb.Source]int{
	vulndb.NVD: 0, vulndb.CNA: 1, vulndb.ADP: 2, vulndb.GHSA: 3, vulndb.GoVuln: 4,
	vulndb.RustSec: 5, vulndb.PyPA: 6, vulndb.RubySec: 7, vulndb.HomebrewOSV: 8, vulndb.OSV: 9,
	vulndb.RedHatErrata: 10, vulndb.SUSEErrata: 11, vulndb.RockyErrata: 12, vulndb.AlmaErrata: 13,
	vulndb.UbuntuOSV: 14, vulndb.UbuntuUSN: 15, vulndb.DebianTracker: 16, vulndb.DebianOSV: 17,
	vulndb.DebianDSA: 18, vulndb.AlpineOSV: 19,
}

// Better reports whether a takes precedence over b. Scores of one rank are ordered by their values,
// so that the input order does not matter.
func Better(a, b vulndb.Score) bool {
	if ra, rb := scoreRank(a), scoreRank(b); ra != rb {
		return ra < rb
	}
	if a.Base != b.Base {
		return a.Base > b.Base
	}
	if a.Version != b.Version {
		return a.Version > b.Version
	}
	if sa, sb := sourceOrder[a.Source], sourceOrder[b.Source]; sa != sb {
		return sa < sb
	}
	return a.Vector < b.Vector
}

func scoreRank(s vulndb.Score) int {
	if s.Source == "" {
		return rankUnknown
	}
	switch s.Version {
	case "3.1", "3.0":
		return rankV3(s)
	case "4.0":
		return rankV4 + sourceOrder[s.Source]
	case "2.0":
		return rankV2 + sourceOrder[s.Source]
	}
	if s.Base > 0 {
		return rankNoVersion + sourceOrder[s.Source]
	}
	return rankSeverityOnly + sourceOrder[s.Source]
}

func rankV3(s vulndb.Score) int {
	switch s.Source {
	case vulndb.NVD:
		if s.Version == "3.1" {
			return rankNVD31
		}
		return rankNVD30
	case vulndb.CNA:
		return rankCNA3
	case vulndb.ADP:
		return rankADP3
	case vulndb.GHSA:
		return rankGHSA3
	default:
		return rankOther3
	}
}
