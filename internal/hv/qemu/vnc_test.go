package qemu

import (
	"net"
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
)

// TestScreensListenOnLoopback: other machines reach the screen of a VM only when that is configured.
func TestScreensListenOnLoopback(t *testing.T) {
	for addr, want := range map[string]string{"": "127.0.0.1", "0.0.0.0": "0.0.0.0"} {
		d := &Driver{opts: Options{VNCListen: addr}, reservedPorts: map[int]string{}}
		l, err := d.listenScreen(t.Context(), "vm", &hv.VNC{Password: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Addr().(*net.TCPAddr); got.IP.String() != want || d.reservedPorts[got.Port] != "vm" {
			t.Errorf("with %q it listens on %s", addr, got)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
