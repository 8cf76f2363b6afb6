package agent

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
)

// TestSuspendObstacle: the guest of one driver is not suspended because the other driver of the host can.
func TestSuspendObstacle(t *testing.T) {
	pc, mac := hv.Spec{}, hv.Spec{Apple: &hv.Apple{}}
	for name, tt := range map[string]struct {
		abilities []hv.Capability
		spec      hv.Spec
		want      string // a part of the sentence; "": none
	}{
		"PC":                        {[]hv.Capability{hv.CanPC, hv.CanSuspend}, pc, ""},
		"PC without the ability":    {[]hv.Capability{hv.CanPC}, pc, "qemu cannot save a running guest"},
		"Mac":                       {[]hv.Capability{hv.CanMacOS}, mac, "macOS ties its state to the Mac"},
		"Mac, another driver can":   {[]hv.Capability{hv.CanMacOS, hv.CanPC, hv.CanSuspend}, mac, "macOS ties"},
		"PC next to another driver": {[]hv.Capability{hv.CanMacOS, hv.CanPC, hv.CanSuspend}, pc, ""},
	} {
		got := suspendObstacle(hv.Host{Driver: "qemu", Capabilities: tt.abilities}, tt.spec)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
