package format

import (
	"testing"
	"time"
)

// TestTexts: numbers have a narrow space between thousands, durations their two largest units.
func TestTexts(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct{ got, want string }{
		{Count(7), "7"},
		{Count(1234567), "1\u202f234\u202f567"},
		{Plural(1, "node", "nodes"), "1 node"},
		{Plural(1200, "node", "nodes"), "1\u202f200 nodes"},
		{Confirm(1200, "node", "nodes"), "1200 nodes"}, // as it is typed
		{Duration(-time.Second), "0 s"},
		{Duration(250 * time.Millisecond), "250 ms"},
		{Duration(59500 * time.Millisecond), "1 m 00 s"},
		{Duration(26*time.Hour + 5*time.Minute), "1 d 02 h"},
		{Ago(now, time.Time{}), "-"},
		{Ago(now, now.Add(-90*time.Second)), "1 m 30 s"},
		{Seconds(.5), "500 ms"},
		{Percent(.254), "25"},
		{Path("/events", "q", "a b", "page", ""), "/events?q=a+b"},
		{Path("/events", "q", ""), "/events"},
		{UpperFirst("über"), "Über"},
		{UpperFirst(""), ""},
		{ShortID("0123456789"), "23456789"},
		{ShortID("1"), "1"},
		{FilterValue("main"), "main"},
		{FilterValue(`a "b", c`), `"a \"b\", c"`},
		{QuotedFilterValue("a*"), `"a*"`},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
