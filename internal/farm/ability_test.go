package farm_test

import (
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
)

func TestRunsOS(t *testing.T) {
	for name, tt := range map[string]struct {
		abilities   []string
		macOS, rest bool
	}{
		"a former agent": {[]string{"save"}, false, true},
		"a Mac":          {[]string{"macos"}, true, false},
		"QEMU":           {[]string{"pc"}, false, true},
		"both":           {[]string{"macos", "pc"}, true, true},
	} {
		info := farm.NodeInfo{Abilities: tt.abilities}
		if info.RunsOS("macos") != tt.macOS {
			t.Errorf("%s: runs macOS guests: %t, want %t", name, !tt.macOS, tt.macOS)
		}
		for _, other := range []string{"", "linux", "windows"} {
			if info.RunsOS(other) != tt.rest {
				t.Errorf("%s: runs %q guests: %t, want %t", name, other, !tt.rest, tt.rest)
			}
		}
	}
}

func TestRunsGuestOf(t *testing.T) {
	linux, raw := farm.TemplateRef{OS: "linux"}, farm.TemplateRef{OS: "macos"}
	archive := farm.TemplateRef{OS: "macos", AnkaImage: true}
	for name, tt := range map[string]struct {
		abilities           []string
		linux, raw, archive bool
	}{
		"a former agent":   {[]string{"save"}, true, false, false},
		"QEMU":             {[]string{"pc"}, true, false, false},
		"tart":             {[]string{"macos"}, false, true, false},
		"tart next to PCs": {[]string{"macos", "pc"}, true, true, false},
		"anka":             {[]string{"anka-images", "macos"}, false, false, true},
		"anka next to PCs": {[]string{"anka-images", "macos", "pc"}, true, false, true},
	} {
		info := farm.NodeInfo{Abilities: tt.abilities}
		for ref, want := range map[*farm.TemplateRef]bool{&linux: tt.linux, &raw: tt.raw, &archive: tt.archive} {
			if got := info.RunsGuestOf(ref); got != want {
				t.Errorf("%s: runs %+v: %t, want %t", name, *ref, got, want)
			}
		}
	}
}

func TestCanSave(t *testing.T) {
	for name, tt := range map[string]struct {
		abilities           []string
		os                  string
		canSave, canSuspend bool
	}{
		"a former agent":       {[]string{"bridge"}, "", true, true},
		"QEMU":                 {[]string{"pc", "save", "suspend"}, "linux", true, true},
		"a Mac":                {[]string{"macos", "save"}, "macos", true, false},
		"a Mac without saves":  {[]string{"macos"}, "macos", false, false},
		"macOS next to others": {[]string{"macos", "pc", "save", "suspend"}, "macos", true, false},
		"others next to macOS": {[]string{"macos", "pc", "save", "suspend"}, "linux", true, true},
	} {
		info := farm.NodeInfo{Abilities: tt.abilities}
		if info.CanSave() != tt.canSave || info.CanSuspend(tt.os) != tt.canSuspend {
			t.Errorf("%s: saves %t, running guests %t", name, info.CanSave(), info.CanSuspend(tt.os))
		}
	}
}

func TestRequestedAbilities(t *testing.T) {
	for name, tt := range map[string]struct {
		instance farm.Instance
		want     farm.AbilitySet
	}{
		"nothing":     {farm.Instance{}, 0},
		"managed MAC": {farm.Instance{MAC: "52:54:00:00:00:01"}, farm.CanSetMAC},
		"macOS":       {farm.Instance{Template: farm.TemplateRef{OS: "macos"}}, farm.RunsMacDisks},
		"anka": {
			farm.Instance{Template: farm.TemplateRef{OS: "macos", AnkaImage: true}}, farm.RunsAnkaImages,
		},
		"requested MAC": {farm.Instance{Options: farm.StartOptions{MACAddress: "x"}}, farm.CanSetMAC},
		"template's":    {farm.Instance{Template: farm.TemplateRef{SetsMAC: true}}, farm.CanSetMAC},
		"serial number": {farm.Instance{Options: farm.StartOptions{HardwareSerial: "x"}}, farm.CanSetIdentity},
		"hardware UUID": {farm.Instance{Options: farm.StartOptions{HardwareUUID: "x"}}, farm.CanSetIdentity},
		"VGA":           {farm.Instance{Template: farm.TemplateRef{Video: "fbuf"}}, farm.HasVGA},
		"virtio-gpu": {farm.Instance{
			Options: farm.StartOptions{Video: "pg"}, Template: farm.TemplateRef{Video: "fbuf"},
		}, 0},
		"host": {farm.Instance{Options: farm.StartOptions{NetworkMode: "host"}}, farm.HasNetworkHost},
		"disconnected": {
			farm.Instance{Template: farm.TemplateRef{Network: "disconnected"}}, farm.HasNetworkDisconnected,
		},
	} {
		if got := tt.instance.RequestedAbilities(); got != tt.want {
			t.Errorf("%s: %b, want %b", name, got, tt.want)
		}
	}
}
