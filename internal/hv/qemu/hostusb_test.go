//go:build linux

package qemu_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
)

// QEMU gets a device of the host as an open file. The test has no device: a plain file stands for
// it, which QEMU accepts and its USB library refuses.
func TestHostUSBDevice(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir())
	host := t.TempDir()
	for name, text := range map[string]string{
		"tree/3-1.2/busnum": "3\n", "tree/3-1.2/devnum": "7\n", "nodes/003/007": "no device",
	} {
		path := filepath.Join(host, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	d.SetUSB(filepath.Join(host, "tree"), filepath.Join(host, "nodes"))
	spec := warmSpec(t)
	spec.EditPC().USB = []hv.USBDevice{{Location: "3-1.2"}}
	defer remove(t, d, spec.ID)
	_, err := d.Start(t.Context(), spec)
	if err == nil || !strings.Contains(err.Error(), "attach USB device 3-1.2") ||
		!strings.Contains(err.Error(), "failed to open host usb device /dev/fdset/") {
		t.Errorf("Start: %v", err)
	}
	if vm, err := d.Get(t.Context(), spec.ID); err != nil || vm.Status != hv.Stopped ||
		!strings.Contains(vm.Failure, "3-1.2") {
		t.Errorf("%+v, %v", vm, err)
	}
}
