package match

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// FailOn selects the findings that fail a build. The zero value selects none.
type FailOn struct {
	Severity vulndb.Severity // minimum; "" selects none
	Score    float64         // minimum; 0 selects none
	KEV      bool            // findings that are known exploited
	Unknown  bool            // findings of unknown score and severity

	Reachable bool // findings whose vulnerable code is part of a program
}

// ParseFailOn parses the conditions that fail a build: a severity, a score, "kev", "unknown",
// "reachable", or several of them with commas between, any of which is enough: "critical,kev", "score=7.5",
// "high,unknown".
func ParseFailOn(s string) (FailOn, error) {
	var out FailOn
	for part := range strings.SplitSeq(s, ",") {
		part = strings.ToLower(strings.TrimSpace(part))
		key, value, found := strings.Cut(part, "=")
		if !found {
			key, value = "", part
		}
		switch score, err := strconv.ParseFloat(value, 64); {
		case part == "kev":
			out.KEV = true
		case part == "unknown":
			out.Unknown = true
		case part == "reachable":
			out.Reachable = true
		case key != "severity" && err == nil && score > 0 && score <= 10:
			out.Score = score
		default:
			severity, err := ParseSeverity(value)
			if key != "" && key != "severity" || err != nil {
				return FailOn{},
					fmt.Errorf(
						"invalid fail condition %q: want a severity (low, medium, high, critical), a score (0.1 to "+
							"10), kev, unknown or reachable", part)
			}
			out.Severity = severity
		}
	}
	return out, nil
}

// Fails returns the findings that fail a build. Unconfirmed findings never do, nor do those of packages
// that a distribution may have patched; those without a score do by Unknown alone, but known exploited
// ones need no score.
func (o FailOn) Fails(findings []Finding) []Finding {
	var out []Finding
	for i := range findings {
		if f := &findings[i]; o.selects(f) && f.DistroPatched == "" {
			out = append(out, *f)
		}
	}
	return out
}

// MayBePatched returns how many findings do not fail a build only because a distribution may have
// patched their packages.
func (o FailOn) MayBePatched(findings []Finding) int {
	n := 0
	for i := range findings {
		if f := &findings[i]; o.selects(f) && f.DistroPatched != "" {
			n++
		}
	}
	return n
}

// Unknowns returns how many findings fail no build because their severity is unknown, and the conditions do not
// have Unknown.
func (o FailOn) Unknowns(findings []Finding) int {
	if o == (FailOn{}) || o.Unknown {
		return 0
	}
	n := 0
	for i := range findings {
		if f := &findings[i]; !o.selects(f) && (FailOn{Unknown: true}).selects(f) {
			n++
		}
	}
	return n
}

// UnknownReachability returns how many findings fail no build because it is not known whether a program has their
// vulnerable code, and the conditions have Reachable.
func (o FailOn) UnknownReachability(findings []Finding) int {
	if !o.Reachable {
		return 0
	}
	n := 0
	for i := range findings {
		f := &findings[i]
		if f.Reachability() == LinkUnknown && f.DistroPatched == "" && !f.Unconfirmed && !o.selects(f) {
			n++
		}
	}
	return n
}

// selects reports whether a finding meets one of the conditions.
func (o FailOn) selects(f *Finding) bool {
	v := &f.Vulnerability
	unknown := v.Score.Severity == vulndb.Unknown || v.Score.Severity == ""
	bad := o.KEV && v.Exploited ||
		o.Score > 0 && v.Score.Base >= o.Score ||
		o.Severity != "" && !isBelow(v.Score.Severity, o.Severity) ||
		o.Unknown && unknown && isUnknownScore(v.Score) ||
		o.Reachable && f.Reachability() == Linked
	return bad && !f.Unconfirmed
}
