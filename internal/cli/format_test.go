package cli

import (
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		Plural(1, "day"): "1 day", Plural(0, "day"): "0 days", Plural(2, "vulnerability"): "2 vulnerabilities",
		Plural(1, "vulnerability"):                "1 vulnerability",
		FormatAge(2250*time.Hour + 2*time.Minute): "93 days", FormatAge(47 * time.Hour): "47 hours",
		FormatAge(90 * time.Second): "1m30s",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
