package imagescan

import (
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		many(1, "day"): "1 day", many(0, "day"): "0 days", many(2, "vulnerability"): "2 vulnerabilities", many(1, "vulnerability"): "1 vulnerability",
		about("disk", "it is damaged"): "disk: it is damaged", about("disk", "the disk is damaged"): "the disk is damaged",
		ageText(2250*time.Hour + 2*time.Minute): "93 days", ageText(47 * time.Hour): "47 hours", ageText(90 * time.Second): "1m30s",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
