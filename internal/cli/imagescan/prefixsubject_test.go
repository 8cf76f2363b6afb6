package imagescan

import (
	"testing"

	"github.com/buildyard/buildyard/api"
)

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		prefixSubject("disk", "it is damaged"):       "disk: it is damaged",
		prefixSubject("disk", "the disk is damaged"): "the disk is damaged",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The line names the first package that was not evaluated, and counts all.
func TestNotChecked(t *testing.T) {
	c := api.ScanCoverage{}
	if got := notEvaluatedLine(&c); got != "" {
		t.Errorf("got %q", got)
	}
	for _, name := range []string{"a", "b\n", "c", "d"} {
		c.Unjudged = append(c.Unjudged, api.ScanNotEvaluated{Name: name, Version: "HEAD"})
	}
	c.Unjudgeds = 200
	if got, want := notEvaluatedLine(&c),
		", 200 packages not evaluated: a HEAD, b? HEAD, c HEAD, 197 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
