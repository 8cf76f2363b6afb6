package localtemplate_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/localtemplate"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/qcow2/qcow2test"
	"github.com/buildyard/buildyard/internal/transfer"
)

// TestPushOfWhatTheGuestSees: a registry receives the disk of a qcow2 image, and a pull returns a
// raw disk whose configuration is adapted; the local image is unchanged.
func TestPushOfWhatTheGuestSees(t *testing.T) {
	reg := serve(t)
	here, dir := open(t)
	disk := bytes.Repeat([]byte("what the guest sees "), 1<<16)[:1<<20]
	path := qcow2test.Image(t, nil, disk)
	vm, err := here.Import(t.Context(), hv.Disk{Path: path, Format: "qcow2"}, localtemplate.Settings{Name: "debian"},
		nil)
	if err != nil {
		t.Fatal(err)
	}
	byTemplate, err := here.Push(t.Context(), reg, vm.ID, localtemplate.PushOptions{Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	if after, err := here.Find("debian"); err != nil || after.Disks[0].Format != "qcow2" ||
		len(versions(t, dir, vm.ID)) != 1 {
		t.Errorf("after the push: %+v, %v", after, err)
	}
	x := localtemplate.RegistryImages{Registry: reg, ImageTool: plain{}}
	byFile, err := x.Push(t.Context(), hv.Disk{Path: path, Format: "qcow2"}, localtemplate.Settings{Name: "other"},
		localtemplate.PushOptions{Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, pushed := range []api.PushResult{byTemplate, byFile} {
		to := t.TempDir()
		result, err := reg.Pull(t.Context(), transfer.PullOptions{Ref: transfer.VersionRef{ID: pushed.ID}, Dir: to})
		if err != nil {
			t.Fatal(err)
		}
		var config api.TemplateConfig
		if err := json.Unmarshal(result.Manifest.Config, &config); err != nil {
			t.Fatal(err)
		}
		if d := config.HardDrives[0]; d.File != "disk.img" || d.Format != "raw" {
			t.Errorf("the configuration says %+v", d)
		}
		got, err := os.ReadFile(filepath.Join(to, "disk.img"))
		if err != nil || !bytes.Equal(got, disk) {
			t.Errorf("%d bytes were pulled, %v", len(got), err)
		}
	}
}
