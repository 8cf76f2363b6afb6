package controller

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
)

func TestMachineOfAnOrder(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 2)
		a.info = &api.NodeInfo{Arch: "amd64", Driver: "sim", USB: []api.USBDevice{{Name: "phone", Location: "1"}}}
		a.contact()
		c.mustStart(StartRequest{})
		if o := a.take(api.OrderStart); o.Start.Machine != nil {
			t.Errorf("a plain start changes the machine: %+v", o.Start.Machine)
		}
		c.mustStart(StartRequest{Options: farm.StartOptions{
			CPUs: 2, MemoryMB: 256, DiskBytes: 80 << 30, KeepFileSystem: true,
			HardwareUUID: templateID, HardwareSerial: "s", Video: "pg", NetworkMode: "host", NetworkLocal: "forceOn",
			VNCPassword: "pw", USBDevice: "phone",
		}})
		want := &api.Machine{
			CPUs: 2, MemoryMB: 256, DiskBytes: 80 << 30, KeepFileSys: true,
			HardwareUUID: templateID, Serial: "s", Video: "pg", Network: "host", NetworkLocal: "forceOn",
			VNCPassword: "pw", USB: "phone", USBDevice: "1",
		}
		o := a.take(api.OrderStart)
		if d := cmp.Diff(want, o.Start.Machine); d != "" {
			t.Errorf("machine (-want +got):\n%s", d)
		}
		if used := c.used(a); used != (sched.Load{VMs: 2, VCPU: 1 + 2, MemoryMB: 512 + 256}) {
			t.Errorf("takes %+v of its node", used)
		}
	})
}

// TestOverridesCountAgainstResources: an overridden size is what the VM uses.
func TestOverridesCountAgainstResources(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		n, _ := c.Nodes.Get(t.Context(), a.id)
		byResource := n.Node.Clone()
		byResource.CapacityMode, byResource.VCPUOverride, byResource.RAMOverride = farm.CapacityByResources, 4, 2048
		c.putNode(byResource)
		c.mustStart(StartRequest{Options: farm.StartOptions{CPUs: 3}})
		waits := c.mustStart(StartRequest{Options: farm.StartOptions{CPUs: 2}})[0]
		large := c.mustStart(StartRequest{Options: farm.StartOptions{MemoryMB: 4096}})[0]
		fits := c.mustStart(StartRequest{})[0]
		for id, placed := range map[string]bool{waits: false, large: false, fits: true} {
			if inst, _ := c.Instances.Get(t.Context(), id); (inst.NodeID != "") != placed {
				t.Errorf("placed on %q: %q", inst.NodeID, inst.Message)
			}
		}
		if inst, _ := c.Instances.Get(t.Context(),
			large); inst.Message != "no node is large enough for 1 vCPU and 4096 MiB" {
			t.Errorf("message = %q", inst.Message)
		}
	})
}

var aPin = api.StateRequirements{
	Driver: "qemu", Version: "7.2.22", Machine: "pc-q35-7.2", Accelerator: "tcg", CPU: "max", HostCPU: "Zeta",
	Layout: "l", CPUs: 3, MemoryMB: 768,
}

func TestSuspendedVersionIsPinned(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		a.info = &api.NodeInfo{Arch: "amd64", Driver: "sim", USB: []api.USBDevice{{Name: "phone"}}}
		a.contact()
		c.shelf.suspend(aPin)
		for name, o := range map[string]farm.StartOptions{
			"vcpu": {CPUs: 1}, "vram": {MemoryMB: 512}, "mac_address": {MACAddress: "m"}, "vlan_tag": {VLAN: "1"},
			"network_mode": {NetworkMode: "host"}, "video_controller": {Video: "pg"},
			"hw_serial": {HardwareSerial: "s"}, "hw_uuid": {HardwareUUID: "u"},
		} {
			want := name +
				" cannot be set: version v2 of template base is suspended, which pins it; leave it out, or start " +
				"a version that was saved stopped"
			_, err := c.Start(t.Context(), StartRequest{TemplateID: templateID, Count: 1, Options: o})
			if err == nil || err.Error() != want || farm.CodeOf(err) != farm.CodeRefused {
				t.Errorf("%v, want %q", err, want)
			}
			if o.MACAddress == "" && o.VLAN == "" { // those that have conditions of their own
				c.mustStart(StartRequest{Tag: "v1", Options: o}) // which is stopped
			}
		}
		for _, o := range []farm.StartOptions{
			{PortOverride: true, Ports: []farm.Port{{Name: "p", GuestPort: 1}}},
			{DiskBytes: 1 << 30},
			{VNCPassword: "p"},
			{USBDevice: "phone"},
			{NetworkLocal: "forceOn"},
			{NetworkLocal: "forceOff"},
			{Script: []byte("x")},
		} {
			id := c.mustStart(StartRequest{Options: o})[0]
			if inst, _ := c.Instances.Get(t.Context(), id); inst.GuestCPUs() != 3 || inst.GuestMemoryMB() != 768 ||
				!inst.Template.Suspended {
				t.Errorf("takes %d CPUs and %d MB", inst.GuestCPUs(), inst.GuestMemoryMB())
			}
		}
	})
}

func TestSavedStateIsPlacedWhereItLoads(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.shelf.suspend(aPin)
		a := c.join("one", 1)
		id := c.mustStart(StartRequest{})[0]
		want := "no node can load the saved state of this version: it needs qemu 7.2.22 with tcg, CPU max, machine " +
			"pc-q35-7.2, on a host with Zeta"
		if inst, _ := c.Instances.Get(t.Context(), id); inst.Message != want {
			t.Errorf("reason = %q", inst.Message)
		}
		a.info = &api.NodeInfo{
			Arch: "amd64", CPUs: 8, MemoryMB: 16384, Driver: "qemu", Hypervisor: "7.2.22", Machine: "pc-q35-7.2",
			Accelerator: "tcg", CPUModel: "max", HostCPU: "other",
		}
		a.poll(api.PollRequest{Info: a.info, HasHeld: true}, 0)
		synctest.Wait()
		if inst, _ := c.Instances.Get(t.Context(), id); inst.NodeID != "" {
			t.Error("placed on a node with another CPU")
		}
		info := *a.info
		info.HostCPU = "Zeta"
		a.info = &info
		orders := a.contact() // which may place it before the response, or after
		if len(orders) == 0 {
			orders = a.contact()
		}
		if len(orders) != 1 || orders[0].Kind != api.OrderStart || orders[0].InstanceID != id {
			t.Errorf("orders = %+v, want the start", orders)
		}
	})
}

func TestUSBDeviceOfAStart(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 2)
		start := func() error {
			_, err := c.Start(t.Context(),
				StartRequest{
					TemplateID: templateID, Count: 1, Options: farm.StartOptions{USBDevice: "1-2", Priority: 1},
				})
			return err
		}
		if err := start(); err == nil ||
			!strings.HasPrefix(err.Error(), "usb_device 1-2 cannot be attached: no node offers such a device") {
			t.Errorf("a device that nobody offers: %v", err)
		}
		a.info = &api.NodeInfo{Arch: "amd64", Driver: "sim", USB: []api.USBDevice{{Name: "phone", Location: "1-2"}}}
		a.contact()
		if err := start(); err != nil {
			t.Fatal(err)
		}
		if o := a.take(api.OrderStart); o.Start.Machine.USB != "1-2" {
			t.Errorf("machine = %+v", o.Start.Machine)
		}
	})
}
