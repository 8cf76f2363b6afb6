package farm_test

import (
	"fmt"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
)

func TestCheckMacOSOfAnka(t *testing.T) {
	screen := &farm.StartOptions{VNCPassword: "secret"}
	archive := farm.TemplateRef{OS: farm.OSMacOS, AnkaImage: true}
	err := archive.CheckMacOS(screen)
	if farm.CodeOf(err) != farm.CodeRefused || err.Error() != farm.RefusalAnkaScreen {
		t.Errorf("an archive of anka: %v", err)
	}
	raw := farm.TemplateRef{OS: farm.OSMacOS}
	if err := raw.CheckMacOS(screen); err != nil {
		t.Errorf("raw disks: %v", err)
	}
}

func TestCheckMacOS(t *testing.T) {
	mac := farm.TemplateRef{OS: farm.OSMacOS, MinCPUs: 2, MinMemoryMB: 4096}
	for want, o := range map[string]farm.StartOptions{
		"<nil>": {
			CPUs: 2, MemoryMB: 4096, Video: "pg", MACAddress: "52:54:00:00:00:01",
			Ports: []farm.Port{{Name: "ssh", Protocol: "tcp"}},
		},
		"USB devices cannot be attached to macOS guests":      {USBDevice: "phone"},
		"video controller \"fbuf\": macOS guests have \"pg\"": {Video: "fbuf"},
		"1 virtual CPUs: this guest needs 2":                  {CPUs: 1},
		"2048 MiB of memory: this guest needs 4096":           {MemoryMB: 2048},
		"port rule \"dns\": udp cannot be forwarded":          {Ports: []farm.Port{{Name: "dns", Protocol: "udp"}}},
		"hardware UUID and serial number of a macOS guest follow from its machine identifier; leave them out": {
			HardwareSerial: "C02",
		},
	} {
		if got := fmt.Sprint(mac.CheckMacOS(&o)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if err := new(farm.TemplateRef).CheckMacOS(&o); err != nil {
			t.Errorf("a guest that is not macOS: %v", err)
		}
	}
}
