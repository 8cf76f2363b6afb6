package record

import (
	"testing"
	"time"
)

// TestPace: a frequent message is logged from time to time, with the number of its occurrences.
func TestPace(t *testing.T) {
	var p LogLimiter
	begin := time.Now()
	for _, step := range []struct {
		after time.Duration
		n     int
		count int
		due   bool
	}{{0, 2, 2, true}, {time.Second, 3, 0, false}, {LogInterval - 1, 1, 0, false}, {LogInterval, 1, 5, true}} {
		if count, due := p.Due(step.n, begin.Add(step.after)); count != step.count || due != step.due {
			t.Errorf("after %s: %d, %v", step.after, count, due)
		}
	}
}
