package buildyard

import (
	"testing"
	"time"
)

// TestKeepTerminated: 0 in the settings keeps nothing; it is not the default.
func TestKeepTerminated(t *testing.T) {
	for setting, want := range map[time.Duration]time.Duration{0: -1, time.Second: time.Second} {
		if got := historyRetention(setting); got != want {
			t.Errorf("%s: %s, want %s", setting, got, want)
		}
	}
}
