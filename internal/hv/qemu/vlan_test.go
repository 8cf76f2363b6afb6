//go:build linux

package qemu_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/guesttest"
	"github.com/buildyard/buildyard/internal/hv/qemu"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// A guest in a VLAN over an uplink is part of the network behind the uplink. Its bridge is created
// for it, and removed with the last guest. A kernel without 802.1Q passes untagged frames instead,
// which tests everything except the tag.
func TestVLAN(t *testing.T) {
	fulltest.Only(t) // TestBridge has a guest on a bridge
	t.Parallel()
	guesttest.Disk(t)
	if os.Getenv(inNamespace) != "" {
		overUplink(t, guest(t))
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("creating network devices requires root")
	}
	for _, tool := range []string{"ip", "busybox"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestVLAN$", "-test.v", "-test.timeout=5m")
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
	t.Logf("%s", out)
}

// uplink creates an uplink and the network behind it, in which the address is 10.77.0.1.
func uplink(t *testing.T) (tagged bool) {
	t.Helper()
	command(t, "ip", "link", "set", "lo", "up")
	if err := exec.CommandContext(t.Context(), "ip", "link", "add", "up0", "type", "veth", "peer", "name",
		"far0").Run(); err != nil {
		t.Skipf("no pairs of network devices in this kernel: %v", err)
	}
	if err := exec.CommandContext(t.Context(), "ip", "link", "add", "br20", "type", "bridge").Run(); err != nil {
		t.Skipf("no bridges in this kernel: %v", err)
	}
	behind := "far0"
	if err := qemu.CanTag("up0"); err == nil {
		tagged, behind = true, "far0.10"
		command(t, "ip", "link", "add", "link", "far0", "name", behind, "type", "vlan", "id", "10")
	} else {
		t.Logf("without tags: %v", err)
	}
	for _, name := range []string{"up0", "far0", behind} {
		command(t, "ip", "link", "set", name, "up")
	}
	command(t, "ip", "addr", "add", "10.77.0.1/24", "dev", behind)
	serveDHCP(t, behind)
	return tagged
}

func overUplink(t *testing.T, image string) {
	tagged := uplink(t)
	var log bytes.Buffer
	o := qemu.Options{
		Dir: t.TempDir(), StopTimeout: 30 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		VLANs: map[int]string{10: "", 20: "br20", 30: "no-such-br"}, Uplink: "up0",
	}
	if !tagged {
		o.Untagged()
	}
	command(t, "ip", "link", "add", "by-vlan77", "type", "bridge") // left by an agent that was killed
	command(t, "ip", "link", "add", "by-vlanx", "type", "bridge")  // not the driver's
	d, err := qemu.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if names, err := qemu.Links(); err != nil || names["by-vlan77"] || !names["by-vlanx"] {
		t.Errorf("there are %v, %v", names, err)
	}
	if h, err := d.Describe(t.Context()); err != nil || !slices.Equal(h.VLANs, []int{10, 20}) ||
		!strings.Contains(log.String(), "bridge no-such-br not found") {
		t.Fatalf("%+v, %v, %s", h.VLANs, err, log.String())
	}
	spec := newSpec(image, "qcow2")
	spec.Network, spec.NeedNetwork, spec.MAC = hv.NetworkBridge, true, "52:54:00:77:00:02"
	for vlan, want := range map[int]string{30: "no-such-br", 40: "is not configured on this node"} {
		other := spec
		other.VLAN = vlan
		if _, err := d.Start(t.Context(), other); !errors.Is(err, hv.ErrRefused) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("VLAN %d: %v", vlan, err)
		}
	}
	spec.VLAN = 10
	defer remove(t, d, spec.ID)
	vm, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if ip, err := netip.ParseAddr(vm.IP); err != nil || !netip.MustParsePrefix("10.77.0.0/24").Contains(ip) {
		t.Fatalf("the guest has the address %q", vm.IP)
	}
	names, err := qemu.Links()
	if on := onBridge(t, "by-vlan10"); err != nil || len(on) != 1 || !names["by-up10"] {
		t.Errorf("on the bridge: %+v; there are %v, %v", on, names, err)
	}
	reachBoth(t, d, vm)
	saved, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true})
	if err != nil || saved.Requirements.VLAN != 10 {
		t.Fatalf("%+v, %v", saved.Requirements, err)
	}
	if err := d.Stop(t.Context(), spec.ID, hv.StopForce); err != nil {
		t.Fatal(err)
	}
	wantNoVLAN(t)
	resumeInVLAN(t, d, spec, saved)
	wantNoVLAN(t)
}

// wantNoVLAN waits until nothing is left of a VLAN that no VM uses.
func wantNoVLAN(t *testing.T) {
	t.Helper()
	var names map[string]bool
	for range 100 {
		var err error
		if names, err = qemu.Links(); err != nil {
			t.Fatal(err)
		}
		if !names["by-vlan10"] && !names["by-up10"] {
			if !names["br20"] || !names["up0"] {
				t.Errorf("what is not ours was removed: %v", names)
			}
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("left: %v", names)
}

// resumeInVLAN resumes from a save: not in another VLAN, but in the saved one, without being
// configured.
func resumeInVLAN(t *testing.T, d *qemu.Driver, spec hv.Spec, saved hv.SaveResult) {
	t.Helper()
	clone := newSpec(spec.Disks[0].Path, "qcow2")
	clone.Disks[0].Deltas = []string{saved.Disks[0].Path}
	clone.State = &hv.State{Path: saved.State, Requirements: saved.Requirements}
	defer remove(t, d, clone.ID)
	other := clone
	other.VLAN = 20
	if _, err := d.Start(t.Context(), other); !errors.Is(err, hv.ErrRefused) ||
		!strings.Contains(err.Error(), "VLAN 20 cannot be set") {
		t.Errorf("saved in VLAN 10, started in 20: %v", err)
	}
	vm, err := d.Start(t.Context(), clone)
	if err != nil {
		t.Fatal(err)
	}
	reachBoth(t, d, vm)
	if err := d.Stop(t.Context(), clone.ID, hv.StopForce); err != nil {
		t.Fatal(err)
	}
}

// Where the kernel has no 802.1Q, or the uplink is missing, a node offers what it can.
func TestVLANsThatCannotBe(t *testing.T) {
	var log bytes.Buffer
	d, err := qemu.Open(t.Context(), qemu.Options{
		Dir: t.TempDir(), VLANs: map[int]string{10: "", 20: "lo"}, Uplink: "no-such-dev",
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if h, _ := d.Describe(t.Context()); len(h.VLANs) != 0 {
		t.Errorf("offered: %v", h.VLANs)
	}
	for _, want := range []string{"no-such-dev", "bridge lo not found"} {
		if os.Geteuid() == 0 && !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q: %s", want, log.String())
		}
	}
}
