//go:build linux

package qemu

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
)

// The command line is part of what a saved state depends on: a change here is
// a decision.
func TestCommandLine(t *testing.T) {
	got := commandLine(launchSpec{
		spec: hv.Spec{
			UUID: "6f1c2f5e-0a67-4d3e-9f6a-0d2f6a6f7c11", Name: "a,b=c", CPUs: 2, MemoryMB: 512,
			MAC: "52:54:00:01:02:03",
			PC: &hv.PC{
				Video: hv.VideoVGA, HardwareUUID: "6f1c2f5e-0a67-4d3e-9f6a-0d2f6a6f7c12", Serial: "C02,uuid=x",
			},
		},
		ports: []hv.PortRule{
			{GuestPort: 22, HostPort: 10000, HostIP: "0.0.0.0", Protocol: "tcp"},
			{GuestPort: 53, HostPort: 10001, HostIP: "127.0.0.1", Protocol: "udp"},
		},
		platform: platforms["amd64"],
		host:     hv.Host{Machine: "pc-q35-7.2", Accelerator: "tcg", CPU: "max"},
		qmpFd:    7, qgaFd: 8, sandbox: true,
		disks: []diskFiles{
			{
				layers: []layerFile{
					{"disk0-layer0", "qcow2", 4, ""}, {"disk0-layer1", "qcow2", 9, ""},
				}, generation: 2, rwFd: 3, roFd: 10,
			},
			{layers: []layerFile{{"disk1-layer0", "raw", 6, ""}}, rwFd: 5, roFd: 11},
		},
	})
	want := strings.Fields(`-uuid 6f1c2f5e-0a67-4d3e-9f6a-0d2f6a6f7c11 -name guest=a,,b=c -nodefaults -no-user-config -display none
 -machine pc-q35-7.2,dump-guest-core=off -accel tcg,thread=multi -cpu max -smp 2 -m 512M -boot menu=off,strict=on -action panic=pause
 -chardev socket,id=qmp,fd=7,server=on,wait=off -mon chardev=qmp,mode=control
 -chardev ringbuf,id=serial,size=65536 -device isa-serial,chardev=serial
 -device vmgenid,guid=auto -vnc none,password=on,connections=8 -device VGA,id=vga,addr=0x1
 -device virtio-serial-pci,id=vserial,addr=0x2 -chardev socket,id=qga,fd=8,server=on,wait=off
 -device virtserialport,chardev=qga,id=qga0,name=org.qemu.guest_agent.0
 -object rng-builtin,id=rng -device virtio-rng-pci,id=rng0,rng=rng,addr=0x3 -device pvpanic
 -netdev user,id=net0,ipv6=off,hostfwd=tcp:0.0.0.0:10000-:22,hostfwd=udp:127.0.0.1:10001-:53
 -device virtio-net-pci,id=nic0,netdev=net0,romfile=,mac=52:54:00:01:02:03,addr=0x4 -device qemu-xhci,id=usb,addr=0x5
 -device pcie-root-port,id=port0,chassis=1,addr=0x6.0,multifunction=on -device pcie-root-port,id=port1,chassis=2,addr=0x6.1,multifunction=on
 -device pcie-root-port,id=port2,chassis=3,addr=0x6.2,multifunction=on -device pcie-root-port,id=port3,chassis=4,addr=0x6.3,multifunction=on
 -smbios type=1,uuid=6f1c2f5e-0a67-4d3e-9f6a-0d2f6a6f7c12,serial=C02,,uuid=x
 -sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny
 -add-fd fd=4,set=1
 -blockdev {"backing":null,"driver":"qcow2","file":{"driver":"file","filename":"/dev/fdset/1","node-name":"disk0-layer0-file","read-only":true},"node-name":"disk0-layer0","read-only":true}
 -add-fd fd=9,set=2
 -blockdev {"backing":"disk0-layer0","driver":"qcow2","file":{"driver":"file","filename":"/dev/fdset/2","node-name":"disk0-layer1-file","read-only":true},"node-name":"disk0-layer1","read-only":true}
 -add-fd fd=3,set=3 -add-fd fd=10,set=3
 -blockdev {"backing":"disk0-layer1","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"qcow2","file":{"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/dev/fdset/3","locking":"off","node-name":"disk0-2-file"},"node-name":"disk0-2"}
 -device virtio-blk-pci,id=vd0,drive=disk0-2,addr=0x8,werror=stop,rerror=stop,bootindex=1
 -add-fd fd=6,set=4
 -blockdev {"driver":"raw","file":{"driver":"file","filename":"/dev/fdset/4","node-name":"disk1-layer0-file","read-only":true},"node-name":"disk1-layer0","read-only":true}
 -add-fd fd=5,set=5 -add-fd fd=11,set=5
 -blockdev {"backing":"disk1-layer0","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"qcow2","file":{"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/dev/fdset/5","locking":"off","node-name":"disk1-0-file"},"node-name":"disk1-0"}
 -device virtio-blk-pci,id=vd1,drive=disk1-0,addr=0x9,werror=stop,rerror=stop`)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Whatever a serial number contains, it stays a single value.
func FuzzSMBIOS(f *testing.F) {
	for _, s := range []string{"", "C02X", ",", ",,", "a,uuid=b", "=", "a,", ",serial=x,"} {
		f.Add(s)
	}
	const uuid = "6f1c2f5e-0a67-4d3e-9f6a-0d2f6a6f7c11"
	f.Fuzz(func(t *testing.T, serial string) {
		s := hv.Spec{
			ID: "a", UUID: uuid, PC: &hv.PC{HardwareUUID: uuid, Serial: serial}, CPUs: 1, MemoryMB: 64,
			Disks: []hv.Disk{{Path: "/a", Format: "raw"}},
		}
		if s.Validate() != nil {
			return
		}
		// As QEMU reads options: a comma ends one, two are a comma in it.
		options := strings.Split(strings.ReplaceAll(smbiosArg(s), ",,", "\x00"), ",")
		for i := range options {
			options[i] = strings.ReplaceAll(options[i], "\x00", ",")
		}
		want := []string{"type=1", "uuid=" + uuid, "serial=" + serial}
		if serial == "" {
			want = want[:2]
		}
		if !slices.Equal(options, want) {
			t.Errorf("%q becomes %q", serial, options)
		}
	})
}

// These arguments decide what a guest may reach.
func TestNetdev(t *testing.T) {
	rule := []hv.PortRule{{GuestPort: 22, HostPort: 10000, HostIP: "0.0.0.0", Protocol: "tcp"}}
	const user, forward = "user,id=net0,ipv6=off", ",hostfwd=tcp:0.0.0.0:10000-:22"
	for _, c := range []struct {
		spec  hv.Spec
		ports []hv.PortRule
		want  string
	}{
		{hv.Spec{Network: hv.NetworkShared}, rule, user + forward},
		{hv.Spec{Network: hv.NetworkNAT}, nil, user},
		{hv.Spec{Network: hv.NetworkNAT, Isolated: true}, rule, user + ",restrict=on" + forward},
		{hv.Spec{Network: hv.NetworkHost}, rule, user + ",restrict=on" + forward},
		{hv.Spec{Network: hv.NetworkDisconnected}, nil, user + ",restrict=on"},
		{hv.Spec{Network: hv.NetworkBridge}, nil, "tap,id=net0,fd=9"},
	} {
		if got := netdevArg(c.spec, c.ports, 9); got != c.want {
			t.Errorf("%s, isolated %v: got %s, want %s", c.spec.Network, c.spec.Isolated, got, c.want)
		}
	}
}

func TestGrowOverlay(t *testing.T) {
	if _, err := exec.LookPath(imageTool); err != nil {
		t.Skip("qemu-img is not installed")
	}
	path := filepath.Join(t.TempDir(), "overlay.qcow2")
	if err := CreateOverlay(t.Context(), path, 8<<20); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{16 << 20, 8 << 20} { // and never back
		if err := growOverlay(t.Context(), path, size); err != nil {
			t.Fatal(err)
		}
		if f, got, err := openBase(hv.Disk{Path: path, Format: "qcow2"}); err != nil || got != 16<<20 {
			t.Errorf("%d bytes, %v", got, err)
		} else {
			_ = f.Close()
		}
	}
	if got := diskBytes(hv.Spec{DiskBytes: 1000}); got != 1024 {
		t.Errorf("a disk of %d bytes", got)
	}
}
