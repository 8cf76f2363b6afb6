package buildnode

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/hv"
)

// describedHost is a driver that only describes its host.
type describedHost struct {
	hv.Driver
	arch string
	fail error
}

func (h describedHost) Describe(context.Context) (hv.Host, error) {
	return hv.Host{Arch: h.arch}, h.fail
}

// TestSameArch: two drivers serve one node only with guests of one architecture.
func TestSameArch(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		mac, pc describedHost
		says    string
	}{
		{describedHost{arch: "arm64"}, describedHost{arch: "arm64"}, ""},
		{describedHost{arch: "arm64"}, describedHost{arch: "amd64"}, "its guests would be amd64 on a node of arm64"},
		{describedHost{fail: broken}, describedHost{arch: "arm64"}, "broken"},
		{describedHost{arch: "arm64"}, describedHost{fail: broken}, "broken"},
	} {
		err := checkSameArch(t.Context(), c.mac, c.pc)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v and %v: %v, want %q", c.mac.arch, c.pc.arch, err, c.says)
		}
	}
}

// TestNoHypervisor: without any, the error says what to install and why each one does not do.
func TestNoHypervisor(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dir, err := datadir.At(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	_, err = openDriver(t.Context(), NodeOptions{
		DataDir: dir, Driver: DriverAuto, Logger: slog.New(slog.DiscardHandler),
	}, datadir.Identity{})
	for _, want := range []string{
		"install QEMU, or tart or anka for macOS guests", "qemu-system", "tart is not installed",
		"anka is not installed",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	_, err = openDriver(t.Context(), NodeOptions{Driver: "vmware"}, datadir.Identity{})
	if err == nil || !strings.Contains(err.Error(), "want one of auto, qemu, tart, anka, sim") {
		t.Errorf("an unknown driver: %v", err)
	}
}

func TestGuestPassword(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	for text, want := range map[string]string{
		"secret\nmore\n": "secret", "secret\r\n": "secret", "secret": "secret", "": "", "\n": "",
		strings.Repeat("x", maxPasswordBytes+1): "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readGuestPassword(path)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%.20q: got %q, %v", text, got, err)
		}
	}
	if got, err := readGuestPassword(""); got != "" || err != nil {
		t.Errorf("without a file: %q, %v", got, err)
	}
	if _, err := readGuestPassword(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestUnusedDirs: a node with VMs of a driver that cannot be used does not start without it.
func TestUnusedDirs(t *testing.T) {
	withVM, empty := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(withVM, "vm-1"), 0o700),
		os.WriteFile(filepath.Join(empty, "notes"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		failures map[string]error
		says     string
	}{
		"VMs":     {map[string]error{withVM: broken, empty: nil}, "has VMs, such as vm-1"},
		"no VMs":  {map[string]error{withVM: nil, empty: broken}, ""},
		"no dir":  {map[string]error{filepath.Join(empty, "none"): broken}, ""},
		"no fail": {map[string]error{withVM: nil}, ""},
	} {
		err := checkUnusedDirs(c.failures)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
