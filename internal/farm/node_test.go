package farm_test

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestNodeEnters: reason and time are those of the last change of the state, not of the last event.
func TestNodeEnters(t *testing.T) {
	at := time.Unix(100, 0)
	n := &farm.Node{State: farm.NodeOffline, StateReason: "before", StateSince: at}
	for _, step := range []struct {
		event  farm.NodeEvent
		moved  bool
		state  farm.NodeState
		reason string
		since  int
	}{
		{farm.NodeTimedOut, false, farm.NodeOffline, "before", 0},
		{farm.NodeContacted, true, farm.NodeActive, "contact", 2},
		{farm.DrainOn, false, farm.NodeDrain, "contact", 2},
		{farm.NodeContacted, false, farm.NodeDrain, "contact", 2},
		{farm.NodeTimedOut, true, farm.NodeOffline, "silence", 5},
		{farm.NodeContacted, true, farm.NodeDrain, "contact", 6},
		{farm.DrainOff, false, farm.NodeActive, "contact", 6},
	} {
		at = at.Add(time.Second)
		if moved := n.ApplyEvent(step.event, string(step.event), at); moved != step.moved {
			t.Errorf("%s moves it: %t", step.event, moved)
		}
		since, reason := n.VisibleSince()
		if n.VisibleState() != step.state || reason != step.reason || since.Unix() != 100+int64(step.since) {
			t.Errorf("after %s: %s since %s, %q; want %+v", step.event, n.VisibleState(), since, reason, step)
		}
	}
}

// TestShownSince: the state that a client sees goes with the reason and the time of that state.
func TestShownSince(t *testing.T) {
	drained, entered := time.Unix(1, 0), time.Unix(2, 0)
	draining := &farm.DrainInfo{Since: drained, Reason: "new disk"}
	for _, c := range []struct {
		state    farm.NodeState
		drain    bool
		draining *farm.DrainInfo
		reason   string
		since    time.Time
	}{
		{farm.NodeActive, false, nil, "back", entered},
		{farm.NodeActive, true, draining, "new disk", drained},
		{farm.NodeActive, true, nil, "back", entered}, // a record of an older program
		{farm.NodeOffline, true, draining, "back", entered},
	} {
		n := farm.Node{State: c.state, Drain: c.drain, DrainInfo: c.draining, StateReason: "back", StateSince: entered}
		if since, reason := n.VisibleSince(); reason != c.reason || !since.Equal(c.since) {
			t.Errorf("%+v: since %s, %q", c, since, reason)
		}
	}
}

// TestSlots: no more than two macOS VMs run on a Mac with Apple silicon, whatever is configured.
func TestSlots(t *testing.T) {
	info := func(os, arch, driver string) farm.NodeInfo {
		return farm.NodeInfo{OS: os, Arch: arch, Hypervisor: farm.Hypervisor{Driver: driver}}
	}
	for _, c := range []struct {
		info        farm.NodeInfo
		most        int
		three, less int // slots where 3 and 1 are configured
	}{
		{info("darwin", "arm64", "anka"), 2, 2, 1},
		{info("darwin", "arm64", "qemu"), 0, 3, 1},
		{info("darwin", "amd64", "anka"), 0, 3, 1},
		{info("linux", "arm64", "sim"), 0, 3, 1},
		{farm.NodeInfo{}, 0, 3, 1},
	} {
		three, one := farm.Node{Capacity: 3}, farm.Node{Capacity: 1}
		if most := c.info.MaxVMs(); most != c.most {
			t.Errorf("%+v: at most %d VMs, want %d", c.info, most, c.most)
		}
		if three.VMLimit(&c.info) != c.three || one.VMLimit(&c.info) != c.less {
			t.Errorf("%+v: %d and %d slots of 3 and 1", c.info, three.VMLimit(&c.info), one.VMLimit(&c.info))
		}
	}
}

// TestHypervisorLicenseEnds: one that names a day is valid to the end of it.
func TestHypervisorLicenseEnds(t *testing.T) {
	day := time.Date(2027, 3, 5, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "never": {}, "2027": {},
		"2027-03-04":                day,
		"04-Mar-2027":               day,
		"4-Mar-2027":                day,
		"2027-03-05T00:00:00Z":      day,
		"2027-03-05T01:00:00+01:00": day,
	} {
		if got := (farm.Hypervisor{LicenseExpires: text}).LicenseExpiresAt(); !got.Equal(want) {
			t.Errorf("%q ends at %s, want %s", text, got, want)
		}
	}
}

// TestContactEvent: a license that has ended or is not valid makes the node inactive, with the reason.
func TestContactEvent(t *testing.T) {
	now := time.Date(2027, 3, 5, 12, 0, 0, 0, time.UTC)
	for expires, reason := range map[string]string{
		"":                  "",
		"2027-03-05":        "",
		"2027-03-04":        "its license expired: 2027-03-04",
		farm.InvalidLicense: "its hypervisor has no valid license",
	} {
		event := farm.NodeContacted
		if reason != "" {
			event = farm.LicenseExpired
		}
		info := farm.NodeInfo{Hypervisor: farm.Hypervisor{LicenseExpires: expires}}
		if got, why := info.ContactEvent(now); got != event || why != reason {
			t.Errorf("license until %q: event %v, reason %q; want %v, %q", expires, got, why, event, reason)
		}
	}
}
