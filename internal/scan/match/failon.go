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
}

// ParseFailOn parses the conditions that fail a build: a severity, a score, "kev", or several of
// them with commas between, any of which is enough: "critical,kev", "score=7.5".
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
		case key != "severity" && err == nil && score > 0 && score <= 10:
			out.Score = score
		default:
			severity, err := ParseSeverity(value)
			if key != "" && key != "severity" || err != nil {
				return FailOn{},
					fmt.Errorf(
						"invalid fail condition %q: want a severity (low, medium, high, critical), a score (0.1 to "+
							"10) or kev", part)
			}
			out.Severity = severity
		}
	}
	return out, nil
}

// Fails returns the findings that fail a build. Unconfirmed findings, and findings without a score,
// never do; known exploited ones need no score.
func (o FailOn) Fails(findings []Finding) []Finding {
	var out []Finding
	for _, f := range findings {
		v := f.Vulnerability
		bad := o.KEV && v.Exploited ||
			o.Score > 0 && v.Score.Base >= o.Score ||
			o.Severity != "" && !isBelow(v.Score.Severity, o.Severity)
		if bad && !f.Unconfirmed {
			out = append(out, f)
		}
	}
	return out
}
