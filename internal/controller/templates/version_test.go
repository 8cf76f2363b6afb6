package templates

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

func TestSetGuest(t *testing.T) {
	list := []byte("bplist00")
	for name, tt := range map[string]struct {
		config api.TemplateConfig
		want   farm.TemplateRef
	}{
		"nothing": {api.TemplateConfig{}, farm.TemplateRef{Arch: "amd64"}},
		"linux":   {api.TemplateConfig{OS: "linux"}, farm.TemplateRef{Arch: "amd64", OS: "linux"}},
		"unknown": {api.TemplateConfig{OS: "beos"}, farm.TemplateRef{Arch: "amd64"}},
		"macOS": {
			api.TemplateConfig{OS: "macos", Apple: &api.ConfigApple{
				HardwareModel: list, MachineID: list, MinCPUs: 2, MinMemoryMB: 4096,
			}},
			farm.TemplateRef{Arch: "arm64", OS: "macos", MinCPUs: 2, MinMemoryMB: 4096},
		},
		"anka": {
			api.TemplateConfig{
				OS: "macos", Apple: &api.ConfigApple{},
				HardDrives: []api.ConfigDrive{{File: "vm.anka", Format: "anka"}},
			},
			farm.TemplateRef{Arch: "arm64", OS: "macos", AnkaImage: true},
		},
		"a block alone": {
			api.TemplateConfig{Apple: &api.ConfigApple{MinCPUs: -1}}, farm.TemplateRef{Arch: "arm64", OS: "macos"},
		},
		"demands": {
			api.TemplateConfig{
				Display:      &api.ConfigScreen{Video: "fbuf"},
				NetworkCards: []api.ConfigNIC{{MACAddress: "52:54:00:00:00:01"}},
			},
			farm.TemplateRef{Arch: "amd64", Video: "fbuf", SetsMAC: true},
		},
	} {
		got := farm.TemplateRef{Arch: "amd64"}
		setGuest(&got, tt.config)
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
