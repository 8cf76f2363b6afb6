//go:build linux

package qemu_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/guesttest"
	"github.com/buildyard/buildyard/internal/hv/qemu"
)

// inNamespace marks a process that has its own network namespace.
const inNamespace = "QEMU_TEST_OWN_NETWORK"

// A guest on a bridge is a host of that network: it gets its address there and both sides reach
// each other. The test creates the bridge in a separate network namespace.
func TestBridge(t *testing.T) {
	t.Parallel()
	guesttest.Disk(t)
	if os.Getenv(inNamespace) != "" {
		bridged(t, guest(t)) // the turn is that of the child process
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can make a bridge")
	}
	for _, tool := range []string{"ip", "busybox"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBridge$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM):
		t.Skip("no network namespaces here")
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP")):
		t.Skipf("%s", out)
	}
}

func bridged(t *testing.T, image string) {
	command(t, "ip", "link", "set", "lo", "up")
	if err := exec.CommandContext(t.Context(), "ip", "link", "add", "by-test0", "type", "bridge").Run(); err != nil {
		t.Skipf("no bridges in this kernel: %v", err)
	}
	command(t, "ip", "link", "set", "by-test0", "mtu", "1400", "address", "02:00:00:00:00:01", "up")
	command(t, "ip", "addr", "add", "10.77.0.1/24", "dev", "by-test0")
	serveDHCP(t, "by-test0")
	d, err := qemu.Open(t.Context(), qemu.Options{Dir: t.TempDir(), Bridge: "by-test0", StopTimeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if h, err := d.Describe(t.Context()); err != nil || !h.HasCapability(hv.CanBridge) {
		t.Fatalf("%+v, %v", h, err)
	}
	spec := newSpec(image, "qcow2")
	spec.Network, spec.NeedNetwork, spec.MAC = hv.NetworkBridge, true, "52:54:00:77:00:02"
	defer remove(t, d, spec.ID)
	vm, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if ip, err := netip.ParseAddr(vm.IP); err != nil || !netip.MustParsePrefix("10.77.0.0/24").Contains(ip) {
		t.Fatalf("the guest has the address %q", vm.IP)
	}
	taps := onBridge(t, "by-test0")
	if len(taps) != 1 || taps[0].MTU != 1400 || taps[0].HardwareAddr.String() != "fe:54:00:77:00:02" ||
		taps[0].Flags&net.FlagUp == 0 {
		t.Errorf("on the bridge: %+v", taps)
	}
	reachBoth(t, d, vm)
	saved, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true})
	if err != nil || saved.Requirements.Network != "tap" || saved.Requirements.MAC != spec.MAC {
		t.Fatalf("%+v, %v", saved.Requirements, err)
	}
	if err := d.Stop(t.Context(), spec.ID, hv.StopForce); err != nil {
		t.Fatal(err)
	}
	if left := onBridge(t, "by-test0"); len(left) != 0 {
		t.Errorf("left on the bridge: %+v", left)
	}
	resumeBridged(t, d, spec, saved)
}

// resumeBridged resumes from a save: not in another kind of network, but on the bridge, where the
// guest still has its address.
func resumeBridged(t *testing.T, d *qemu.Driver, spec hv.Spec, saved hv.SaveResult) {
	clone := newSpec(spec.Disks[0].Path, "qcow2")
	clone.Disks[0].Deltas = []string{saved.Disks[0].Path}
	clone.State = &hv.State{Path: saved.State, Requirements: saved.Requirements}
	defer remove(t, d, clone.ID)
	other := clone
	other.Network = hv.NetworkShared
	if _, err := d.Start(t.Context(), other); !errors.Is(err, hv.ErrRefused) ||
		!strings.Contains(err.Error(), "network mode") {
		t.Errorf("saved on a bridge, started behind NAT: %v", err)
	}
	vm, err := d.Start(t.Context(), clone)
	if err != nil {
		t.Fatal(err)
	}
	if vm.MAC != spec.MAC || vm.IP == "" {
		t.Errorf("the clone is %+v", vm)
	}
	reachBoth(t, d, vm)
}

// reachBoth connects from the host to the guest and back.
func reachBoth(t *testing.T, d *qemu.Driver, vm hv.VM) {
	t.Helper()
	c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", net.JoinHostPort(vm.IP, "22"))
	if err != nil {
		t.Fatalf("host to guest: %v", err)
	}
	_ = c.Close()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "10.77.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte("hello\n"))
			_ = c.Close()
		}
	}()
	script := fmt.Sprintf("busybox nc -w 10 10.77.0.1 %d", l.Addr().(*net.TCPAddr).Port)
	r, err := d.Exec(t.Context(), vm.ID, hv.ScriptCommand([]byte(script+" </dev/null"), time.Minute))
	if err != nil || string(r.Stdout) != "hello\n" {
		t.Errorf("guest to host: %+v, %v", r, err)
	}
}

// onBridge returns the devices on a bridge.
func onBridge(t *testing.T, bridge string) (out []net.Interface) {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	text, err := exec.CommandContext(t.Context(), "ip", "-o", "link", "show", "master", bridge).Output()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all,
		func(i net.Interface) bool { return !strings.Contains(string(text), ": "+i.Name+": ") })
}

func serveDHCP(t *testing.T, device string) {
	t.Helper()
	dir := t.TempDir()
	leases, conf := filepath.Join(dir, "leases"), filepath.Join(dir, "conf")
	text := fmt.Sprintf(
		"start 10.77.0.100\nend 10.77.0.150\ninterface %s\nlease_file %s\npidfile %s\noption subnet 255.255.255.0\n",
		device, leases, filepath.Join(dir, "pid"))
	for name, content := range map[string]string{leases: "", conf: text} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "busybox", "udhcpd", "-f", conf)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the test's context has ended it
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// Without a bridge the mode is refused, with advice.
func TestNoBridge(t *testing.T) {
	image := guesttest.Disk(t)
	for bridge, want := range map[string]string{
		"": "no bridge is configured", "no-such-br": "no-such-br", "lo": "lo", "../x": "../x",
	} {
		d, err := qemu.Open(t.Context(), qemu.Options{Dir: t.TempDir(), Bridge: bridge})
		if err != nil {
			t.Fatal(err)
		}
		spec := newSpec(image, "qcow2")
		spec.Network = hv.NetworkBridge
		if _, err := d.Start(t.Context(), spec); !errors.Is(err, hv.ErrRefused) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("bridge %q: %v", bridge, err)
		}
		if h, _ := d.Describe(t.Context()); h.HasCapability(hv.CanBridge) {
			t.Errorf("bridge %q counts as one", bridge)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
