package localtemplate

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv"
)

// TestChangedFiles: a file that is written, grows or disappears during an import is noticed.
func TestChangedFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(path, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := readFileStates(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := before.checkUnchanged(); err != nil {
		t.Errorf("unchanged: %v", err)
	}
	later := time.Now().Add(time.Hour)
	for name, change := range map[string]func() error{
		"written": func() error { return os.Chtimes(path, later, later) },
		"grown":   func() error { return os.Truncate(path, 2) },
		"removed": func() error { return os.Remove(path) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.WriteFile(path, []byte("a"), 0o600), change()); err != nil {
				t.Fatal(err)
			}
			if err := before.checkUnchanged(); err == nil {
				t.Error("the change is not noticed")
			}
		})
	}
}

// TestDescribedDevices: the configuration of a new template describes its devices: the slots of a PC, the screen of
// a Mac.
func TestDescribedDevices(t *testing.T) {
	_, pc := newTemplate(Settings{Name: "a"}, "qcow2")
	_, mac := newMacTemplate(MacOSGuest{Apple: hv.Apple{MinCPUs: 2}}, Settings{Name: "a"})
	for name, tt := range map[string]struct {
		got, want api.TemplateConfig
	}{
		"PC": {pc.parsed, api.TemplateConfig{
			HardDrives: []api.ConfigDrive{
				{PCISlot: 8, Controller: "virtio-blk", File: "disk.qcow2", Format: "qcow2"},
			},
			NetworkCards: []api.ConfigNIC{{PCISlot: 4}},
			USB:          &api.ConfigUSB{PCISlot: 5, Host: true},
			Display:      &api.ConfigScreen{FrameBuffer: &api.ConfigFrameBuffer{PCISlot: 1}},
			Version:      1,
		}},
		"Mac": {mac.parsed, api.TemplateConfig{
			HardDrives:   []api.ConfigDrive{{File: "disk.img", Format: "raw"}, {File: "aux.img", Format: "raw"}},
			NetworkCards: []api.ConfigNIC{{}},
			Display:      &api.ConfigScreen{FrameBuffer: &api.ConfigFrameBuffer{Width: 1024, Height: 768}},
			Version:      1,
		}},
	} {
		got := api.TemplateConfig{
			HardDrives: tt.got.HardDrives, USB: tt.got.USB, Display: tt.got.Display, Version: tt.got.Version,
		}
		for _, card := range tt.got.NetworkCards {
			got.NetworkCards = append(got.NetworkCards, api.ConfigNIC{PCISlot: card.PCISlot})
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
