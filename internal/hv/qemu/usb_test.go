//go:build linux

package qemu

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

func TestUSBNode(t *testing.T) {
	tree := t.TempDir()
	h := usbHost{sysfsDir: tree, devDir: "/dev/bus/usb"}
	device := filepath.Join(tree, "2-1.4")
	if err := os.Mkdir(device, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"busnum": "2\n", "devnum": "17\n"} {
		if err := os.WriteFile(filepath.Join(device, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := h.deviceFile("2-1.4"); err != nil || got != "/dev/bus/usb/002/017" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := h.deviceFile("2-1"); !errors.Is(err, hv.ErrRefused) {
		t.Errorf("a device that is not there: %v", err)
	}
	if err := os.WriteFile(filepath.Join(device, "devnum"), []byte("../../x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := h.deviceFile("2-1.4"); err == nil {
		t.Errorf("an odd number gave %q", got)
	}
}

// A device of the host has one user at a time.
func TestUSBDeviceInUse(t *testing.T) {
	d := &Driver{machines: map[string]*machine{}}
	one := &machine{driver: d, id: "one", run: new(run)}
	one.config.Spec.EditPC().USB = []hv.USBDevice{{Location: "1-1"}}
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
	one.startingUSB = one.config.Spec.PC.USB // of two simultaneous starts, the second is refused
	two := hv.Spec{
		ID: "two", PC: &hv.PC{USB: []hv.USBDevice{{Location: "emulated:tablet"}, {Location: "1-1"}}},
	}
	if m, err := d.ensureMachine(two); !errors.Is(err, hv.ErrRefused) || m != nil {
		t.Errorf("it is being started with: %v", err)
	}
	d.releaseUSBReservation(one)
	if err := d.usbFreeLocked(two); err != nil {
		t.Errorf("its start is over: %v", err)
	}
}

// An agent that restarts waits for the port of a screen that another process has taken since then.
func TestScreenPortIsWaitedFor(t *testing.T) {
	busy := portOutOfReach(t)
	port := listenerPort(busy)
	d := &Driver{log: slog.New(slog.DiscardHandler)}
	r := &run{machine: &machine{driver: d}, exited: make(chan struct{}), qmpConnected: make(chan struct{})}
	d.ctx, d.cancel = t.Context(), func() {}
	done := make(chan struct{})
	go func() { defer close(done); r.serveVNC(t.Context(), nil, port) }()
	time.Sleep(50 * time.Millisecond)
	screen := func() net.Listener {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.vncListener
	}
	if screen() != nil {
		t.Fatal("it listens where somebody else does")
	}
	if err := busy.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); screen() == nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody listens")
		}
	}
	if got := listenerPort(screen()); got != port {
		t.Errorf("it listens on %d, not on %d", got, port)
	}
	close(r.exited)
	<-done
	if c, err := screen().Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the port is open after the end of the VM: %v, %v", c, err)
	}
}

// portOutOfReach listens on a port outside the range of ports that the system assigns, so that no
// other test takes it concurrently.
func portOutOfReach(t *testing.T) net.Listener {
	t.Helper()
	for range 100 {
		if l, err := (&Driver{}).listenVNC(t.Context(), 20_000+rand.IntN(10_000)); err == nil {
			return l
		}
	}
	t.Fatal("no free port from 20000 to 29999")
	return nil
}
