//go:build linux

package qemu

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

func TestUSBNode(t *testing.T) {
	tree := t.TempDir()
	h := usbHost{tree: tree, nodes: "/dev/bus/usb"}
	device := filepath.Join(tree, "2-1.4")
	if err := os.Mkdir(device, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"busnum": "2\n", "devnum": "17\n"} {
		if err := os.WriteFile(filepath.Join(device, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := h.node("2-1.4"); err != nil || got != "/dev/bus/usb/002/017" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := h.node("2-1"); !errors.Is(err, hv.ErrRefused) {
		t.Errorf("a device that is not there: %v", err)
	}
	if err := os.WriteFile(filepath.Join(device, "devnum"), []byte("../../x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := h.node("2-1.4"); err == nil {
		t.Errorf("an odd number gave %q", got)
	}
}

// A device of the host has one user at a time.
func TestUSBDeviceInUse(t *testing.T) {
	d := &Driver{machines: map[string]*machine{}}
	one := &machine{d: d, id: "one", run: new(run)}
	one.cfg.Spec.USB = []hv.USBDevice{{Location: "1-1"}}
	d.machines["one"] = one
	if id := d.usbUserLocked(hv.USBDevice{Location: "1-1"}, "two"); id != "one" {
		t.Errorf("used by %q", id)
	}
	if id := d.usbUserLocked(hv.USBDevice{Location: "1-1"}, "one"); id != "" {
		t.Errorf("used by %q, which asks", id)
	}
	one.run = nil
	if id := d.usbUserLocked(hv.USBDevice{Location: "1-1"}, "two"); id != "" {
		t.Errorf("used by %q, which is stopped", id)
	}
	one.starting = one.cfg.Spec.USB // of two starts at once, the second is refused
	two := hv.Spec{ID: "two", USB: []hv.USBDevice{{Location: "emulated:tablet"}, {Location: "1-1"}}}
	if m, err := d.ensure(two); !errors.Is(err, hv.ErrRefused) || m != nil {
		t.Errorf("it is being started with: %v", err)
	}
	d.started(one)
	if err := d.usbFreeLocked(two); err != nil {
		t.Errorf("its start is over: %v", err)
	}
}

// An agent that comes back waits for the port of a screen that somebody else has
// taken meanwhile.
func TestScreenPortIsWaitedFor(t *testing.T) {
	busy, err := listenVNC(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	port := portOf(busy)
	d := &Driver{log: slog.New(slog.DiscardHandler)}
	r := &run{m: &machine{d: d}, gone: make(chan struct{}), linked: make(chan struct{})}
	d.quit, d.close = t.Context(), func() {}
	done := make(chan struct{})
	go func() { defer close(done); r.showScreen(t.Context(), nil, port) }()
	time.Sleep(50 * time.Millisecond)
	if err := busy.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", busy.Addr().String())
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("nobody listens: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	close(r.gone)
	<-done
	if c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", busy.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("the port is open after the end of the VM")
	}
}
