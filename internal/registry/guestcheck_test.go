package registry

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// macPush is the negotiation of a macOS guest, with changes to its configuration.
func macPush(t *testing.T, edit func(c, apple map[string]any)) api.PushRequest {
	t.Helper()
	list := base64.StdEncoding.EncodeToString([]byte("bplist00"))
	apple := map[string]any{
		"hardware_model": list, "machine_id": list, "cpu_min": 2, "memory_min": 4096, "identity": "new",
	}
	c := map[string]any{
		"os": "macos", "apple": apple, "ram": "8G", "cpu": map[string]any{"cores": 4},
		"hard_drives": []any{
			map[string]any{"file": "disk.img", "format": "raw"}, map[string]any{"file": "aux.img", "format": "raw"},
		},
	}
	if edit != nil {
		edit(c, apple)
	}
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return api.PushRequest{Name: "x", Tag: "v1", Arch: "arm64", Config: raw, Files: []api.PushFile{
		{Name: "disk.img", Kind: api.FileDisk},
		{Name: "aux.img", Kind: api.FileDisk},
		{Name: "memory", Kind: api.FileState},
	}}
}

func TestMacOSConfigurationsAreChecked(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	if _, err := r.Negotiate(t.Context(), macPush(t, nil)); err != nil {
		t.Fatalf("a macOS guest is refused: %v", err)
	}
	long := base64.StdEncoding.EncodeToString(make([]byte, maxApplePropertyList+1))
	set := func(name string, value any) func(c, apple map[string]any) {
		return func(c, _ map[string]any) { c[name] = value }
	}
	inApple := func(name string, value any) func(c, apple map[string]any) {
		return func(_, apple map[string]any) { apple[name] = value }
	}
	for _, tt := range []struct {
		field string
		edit  func(c, apple map[string]any)
	}{
		{"config.os", set("os", "beos")},
		{"config.os", set("os", "linux")},
		{"config.apple", func(c, _ map[string]any) { delete(c, "apple") }},
		{"config.ram", inApple("memory_min", 8193)},
		{"config.os", set("os", "")},
		{"config.os", set("os", 5)},
		{"config.apple", set("apple", 5)},
		{"config.apple.hardware_model", inApple("hardware_model", "")},
		{"config.apple.hardware_model", inApple("hardware_model", 5)},
		{"config.apple", inApple("hardware_model", "*")},
		{"config.apple.machine_id", inApple("machine_id", long)},
		{"config.apple.cpu_min", inApple("cpu_min", -1)},
		{"config.apple.cpu_min", inApple("cpu_min", maxCores+1)},
		{"config.apple.memory_min", inApple("memory_min", maxRAM+1)},
		{"config.apple.identity", inApple("identity", "other")},
		{"config.cpu.cores", set("cpu", map[string]any{"cores": 1})},
		{"config.hard_drives", set("hard_drives", []any{map[string]any{"file": "disk.img", "format": "raw"}})},
		{"config.hard_drives", set("hard_drives", []any{
			map[string]any{"file": "disk.img", "format": "raw"}, map[string]any{"file": "aux.img"},
		})},
		{"config.firmware.type", set("firmware", map[string]any{"type": "uefi"})},
		{"config.display.video_controller", set("display", map[string]any{"video_controller": "fbuf"})},
		{"config.state_file", set("state_file", "memory")},
	} {
		req := macPush(t, tt.edit)
		_, err := r.Negotiate(t.Context(), req)
		e, ok := errors.AsType[*farm.Error](err)
		if !ok || e.Code != farm.CodeInvalid || e.Field != tt.field || !strings.HasPrefix(e.Message, e.Field+": ") {
			t.Errorf("%s: %v; want a refusal of %s", req.Config, err, tt.field)
		}
	}
	intel := macPush(t, nil)
	intel.Arch = "amd64"
	if _, err := r.Negotiate(t.Context(), intel); farm.CodeOf(err) != farm.CodeInvalid ||
		!strings.HasPrefix(err.Error(), "arch: ") {
		t.Errorf("an apple block for amd64: %v", err)
	}
	other := pushOf(`{"os":"windows"}`)
	if _, err := r.Negotiate(t.Context(), other); err != nil {
		t.Errorf("a guest of another system: %v", err)
	}
}

// ankaPush is the negotiation of an archive of anka, with changes to its configuration and its file.
func ankaPush(t *testing.T, edit func(c map[string]any, file *api.PushFile)) api.PushRequest {
	t.Helper()
	file := api.PushFile{Name: "vm.ank", Kind: api.FileDisk, Format: "anka"}
	c := map[string]any{
		"os": "macos", "apple": map[string]any{}, "ram": "8G", "cpu": map[string]any{"cores": 4},
		"hard_drives": []any{map[string]any{"file": "vm.ank", "format": "anka"}},
	}
	if edit != nil {
		edit(c, &file)
	}
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return api.PushRequest{
		Name: "x", Tag: "v1", Arch: "arm64", Config: raw,
		Files: []api.PushFile{file, {Name: "other.ank", Kind: api.FileDisk, Format: "anka"}},
	}
}

func TestArchivesOfAnkaAreChecked(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	if _, err := r.Negotiate(t.Context(), ankaPush(t, nil)); err != nil {
		t.Fatalf("an archive is refused: %v", err)
	}
	archive := map[string]any{"file": "vm.ank", "format": "anka"}
	other := map[string]any{"file": "other.ank", "format": "anka"}
	set := func(name string, value any) func(map[string]any, *api.PushFile) {
		return func(c map[string]any, _ *api.PushFile) { c[name] = value }
	}
	for _, tt := range []struct {
		field string
		edit  func(c map[string]any, file *api.PushFile)
	}{
		{"config.os", set("os", "linux")},
		{"config.hard_drives[0].format", set("apple", nil)},
		{"config.hard_drives[0].format", func(c map[string]any, _ *api.PushFile) {
			delete(c, "os")
			delete(c, "apple")
		}},
		{"config.hard_drives", set("hard_drives", []any{archive, other})},
		{"config.hard_drives[0].format", func(_ map[string]any, f *api.PushFile) { f.Format = "raw" }},
		{"config.hard_drives[0].format", set("hard_drives", []any{map[string]any{"file": "vm.ank", "format": "raw"}})},
		{"config.apple.identity", set("apple", map[string]any{"identity": "other"})},
		{"config.cpu.cores", set("apple", map[string]any{"cpu_min": 5})},
		{"config.firmware.type", set("firmware", map[string]any{"type": "uefi"})},
		{"files", func(_ map[string]any, f *api.PushFile) { f.Format = "ank" }},
		{"files", func(_ map[string]any, f *api.PushFile) { f.Kind = api.FileState }},
	} {
		req := ankaPush(t, tt.edit)
		_, err := r.Negotiate(t.Context(), req)
		e, ok := errors.AsType[*farm.Error](err)
		if !ok || e.Code != farm.CodeInvalid || e.Field != tt.field || !strings.HasPrefix(e.Message, e.Field+": ") {
			t.Errorf("%s: %v; want a refusal of %s", req.Config, err, tt.field)
		}
	}
}
