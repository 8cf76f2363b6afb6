package buildnode

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv/sim"
)

func TestSpan(t *testing.T) {
	for text, want := range map[string]sim.DurationRange{
		"2s":       {Min: 2 * time.Second, Max: 2 * time.Second},
		"0":        {},
		"500ms-3s": {Min: 500 * time.Millisecond, Max: 3 * time.Second},
		"1m-1m":    {Min: time.Minute, Max: time.Minute},
	} {
		var s durationRange
		if err := s.Set(text); err != nil || sim.DurationRange(s) != want {
			t.Errorf("%q is %+v, %v", text, s, err)
		}
		var again durationRange
		if err := again.Set(s.String()); s != (durationRange{}) && (err != nil || again != s) {
			t.Errorf("%q is printed %q, which is %+v, %v", text, s.String(), again, err)
		}
	}
	for _, bad := range []string{"", "2", "-1s", "3s-1s", "1s-", "1s-2s-3s", "soon"} {
		var s durationRange
		if err := s.Set(bad); err == nil {
			t.Errorf("%q is taken as %+v", bad, s)
		}
	}
}
