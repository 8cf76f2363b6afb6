package library_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/library"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/transfer"
)

// guestImage makes a qcow2 image of a disk.
func guestImage(t *testing.T, disk []byte) string {
	t.Helper()
	b := qcow2.NewBuilder(int64(len(disk)))
	if err := b.Add(qcow2.Range{Off: 0, Len: int64(len(disk)), Kind: qcow2.Data}); err != nil {
		t.Fatal(err)
	}
	l, err := b.Layout()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "disk.qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := l.Fill(t.Context(), f, bytes.NewReader(disk)); err != nil {
		t.Fatal(err)
	}
	if err := l.Finish(f); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// TestPushOfWhatTheGuestSees: a registry gets the disk of a qcow2 image, and whoever pulls it a raw one whose
// configuration says so; the image here stays what it is.
func TestPushOfWhatTheGuestSees(t *testing.T) {
	reg := serve(t)
	here, dir := open(t)
	disk := bytes.Repeat([]byte("what the guest sees "), 1<<16)[:1<<20]
	path := guestImage(t, disk)
	vm, err := here.Import(t.Context(), hv.Disk{Path: path, Format: "qcow2"}, library.Settings{Name: "debian"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	byTemplate, err := here.Push(t.Context(), reg, vm.ID, library.PushOptions{Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	if after, err := here.Find("debian"); err != nil || after.Disks[0].Format != "qcow2" || len(versions(t, dir, vm.ID)) != 1 {
		t.Errorf("after the push: %+v, %v", after, err)
	}
	x := library.Exchange{Registry: reg, Images: plain{}}
	byFile, err := x.Publish(t.Context(), hv.Disk{Path: path, Format: "qcow2"}, library.Settings{Name: "other"}, library.PushOptions{Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, pushed := range []api.PushResult{byTemplate, byFile} {
		to := t.TempDir()
		result, err := reg.Pull(t.Context(), transfer.PullOptions{Ref: transfer.Ref{ID: pushed.ID}, Dir: to})
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
