package nodescans

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Bounds of the fields of a summary.
const (
	maxText      = 255 // bytes
	maxCount     = 1_000_000_000
	maxClockSkew = 5 * time.Minute // how much the clock of a node may be ahead
)

// validate refuses values that no scanner sends. It converts times to UTC.
func validate(s *api.NodeScanSummary) error {
	for _, f := range []struct{ name, value string }{{"host", s.Host}, {"scanner", s.Scanner}, {"version", s.Version}} {
		if f.value == "" || len(f.value) > maxText || !utf8.ValidString(f.value) ||
			strings.ContainsFunc(f.value, unicode.IsControl) {
			return farm.Invalid(f.name, "must have 1 to %d bytes and no control characters", maxText)
		}
	}
	switch {
	case s.Scanned.IsZero():
		return farm.Invalid("scanned", "is required: want a time such as 2026-01-31T12:00:00Z")
	case s.Scanned.After(s.Received.Add(maxClockSkew)):
		return farm.Invalid("scanned", "is in the future: check the clock of the host")
	}
	for _, t := range []*time.Time{&s.Scanned, &s.Database, &s.LastScan} {
		*t = t.UTC()
	}
	return validateCounts(s.Counts)
}

func validateCounts(n api.NodeScanCounts) error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"critical", n.Critical},
		{"high", n.High},
		{"medium", n.Medium},
		{"low", n.Low},
		{"unknown", n.Unknown},
		{"packages", n.Packages},
		{"exploited", n.Exploited},
	} {
		if f.value < 0 || f.value > maxCount {
			return farm.Invalid("counts."+f.name, "must be an integer between 0 and %d", maxCount)
		}
	}
	return nil
}
