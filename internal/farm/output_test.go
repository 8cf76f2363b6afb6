package farm

import (
	"strings"
	"testing"
)

func TestLastOutput(t *testing.T) {
	long := strings.Repeat("a", 100) + strings.Repeat("z", 61)
	for name, c := range map[string]struct {
		out   string
		limit int
		cut   bool
		want  string
	}{
		"short":             {"abc", 100, false, "abc"},
		"just fits":         {"abc", 3, false, "abc"},
		"too long":          {long, 100, false, OutputTruncatedLine + strings.Repeat("z", 61)},
		"cut before":        {"abc", 100, true, OutputTruncatedLine + "abc"},
		"cut before, full":  {strings.Repeat("a", 100), 100, true, OutputTruncatedLine + strings.Repeat("a", 61)},
		"nothing, yet cut":  {"", 100, true, OutputTruncatedLine},
		"no room for it":    {"abcdef", 4, false, OutputTruncatedLine[:4]},
		"nothing to be cut": {"", 0, false, ""},
	} {
		if got := string(LastOutput([]byte(c.out), c.limit, c.cut)); got != c.want || len(got) > c.limit {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
