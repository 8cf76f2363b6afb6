package agent

import (
	"testing"

	"github.com/buildyard/buildyard/api"
)

// TestIsNewUsage: small changes of the disk are not reported alone, and are reported exactly with others.
func TestIsNewUsage(t *testing.T) {
	acked := api.Usage{CPU: 0.5, HasDisk: true, FreeDisk: 59 << 20, CacheUsage: 100 << 20}
	for name, tc := range map[string]struct {
		change func(*api.Usage)
		want   bool
	}{
		"nothing":         {func(*api.Usage) {}, false},
		"a log line":      {func(u *api.Usage) { u.FreeDisk -= 4096 }, false},
		"a file":          {func(u *api.Usage) { u.FreeDisk -= diskChangeBytes }, true},
		"a version":       {func(u *api.Usage) { u.CacheUsage += 5 << 20 }, true},
		"load":            {func(u *api.Usage) { u.CPU = 0.6; u.FreeDisk-- }, true},
		"the first usage": {func(u *api.Usage) { u.HasDisk = false }, true},
	} {
		usage := acked
		tc.change(&usage)
		if got := isNewUsage(usage, acked); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
