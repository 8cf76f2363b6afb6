package filter

import (
	"strings"
	"testing"
)

func TestMostSimilar(t *testing.T) {
	states := []string{"Scheduling", "Pulling", "Started", "Stopping", "Stopped", "Terminating", "Terminated", "Error"}
	for word, want := range map[string]string{
		"strted": "Started", "STARTD": "Started", "tsarted": "Started", "sched": "Scheduling", "pul*": "Pulling",
		"eror": "Error", "terminate": "Terminated", "stoped": "Stopped", "x": "", "": "", "*": "", "running": "",
		strings.Repeat("s", maxSuggestBytes+1): "",
	} {
		if got := mostSimilar(word, states); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, row := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"abc", "abc", 0},
		{"abc", "abd", 1},
		{"abc", "acb", 1},
		{"abc", "ab", 1},
		{"ab", "xab", 1},
		{"kitten", "sitting", 3},
	} {
		if got := editDistance(row.a, row.b); got != row.want {
			t.Errorf("%q to %q: %d, want %d", row.a, row.b, got, row.want)
		}
	}
}

func TestQuoteValue(t *testing.T) {
	for _, text := range []string{"a", "a:b", "", "a b", `say "x"`, `back\slash`, "a,b", "v1*", "x=1"} {
		f, err := things.Parse("state:" + QuoteValue(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if !f.Match(thing{state: text}, now) || f.Match(thing{state: text + "x"}, now) {
			t.Errorf("%q: its quoted form does not match it alone", text)
		}
	}
}
