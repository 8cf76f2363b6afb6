//go:build linux

package qemu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
)

func TestPlatformOf(t *testing.T) {
	const arm, amd = "qemu-system-aarch64", "qemu-system-x86_64"
	for _, c := range []struct{ binary, hostArch, installed, arch, program string }{
		{"", "amd64", arm + amd, "amd64", amd},
		{"", "arm64", arm + amd, "arm64", arm},
		{"", "arm64", amd, "amd64", amd}, // a node whose guests are emulated
		{"", "arm64", "", "arm64", arm},
		{"/opt/homebrew/bin/qemu-system-aarch64", "amd64", "", "arm64", arm},
		{amd, "arm64", arm, "amd64", amd},
		{"/tmp/aarch64/slow-qemu", "arm64", arm, "amd64", amd},
	} {
		isInstalled := func(program string) bool { return strings.Contains(c.installed, program) }
		if p := platformOf(c.binary, c.hostArch, isInstalled); p.arch != c.arch || p.binary != c.program {
			t.Errorf("%q on %s: %s for %s, want %s for %s", c.binary, c.hostArch, p.binary, p.arch, c.program, c.arch)
		}
	}
}

// TestCommandLineARM: a guest of arm64 has the machine type virt, its firmware, and no device of a PC.
func TestCommandLineARM(t *testing.T) {
	p := platforms["arm64"]
	got := strings.Join(commandLine(launchSpec{
		spec: hv.Spec{
			UUID: "6f1c2f5e-0a67-4d3e-9f6a-0d2f6a6f7c11", CPUs: 2, MemoryMB: 512, PC: &hv.PC{Video: hv.VideoVGA},
		},
		platform: p, firmware: "edk2-aarch64-code.fd",
		host: hv.Host{Machine: "virt-9.2", Accelerator: "hvf", CPU: "host", Arch: "arm64"},
	}), " ")
	for _, part := range []string{
		"-machine virt-9.2,dump-guest-core=off,gic-version=max -accel hvf -cpu host", "-serial chardev:serial",
		"-device virtio-gpu-pci,id=vga,addr=0x1", "-device pvpanic-pci,addr=0x7",
		"-device qemu-xhci,id=usb,addr=0x5 -device usb-kbd,bus=usb.0 -device usb-tablet,bus=usb.0",
		"-bios edk2-aarch64-code.fd",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("no %s in\n%s", part, got)
		}
	}
	for _, part := range []string{"isa-", "vmgenid", "VGA", "q35"} {
		if strings.Contains(got, part) {
			t.Errorf("%s in\n%s", part, got)
		}
	}
}

// TestCapabilitiesARM: guests of arm64 are not saved while they run, and have no VGA.
func TestCapabilitiesARM(t *testing.T) {
	for arch, want := range map[string]bool{"amd64": true, "arm64": false} {
		has := (&Driver{platform: platforms[arch]}).baseCapabilities()
		for _, c := range []hv.Capability{hv.CanVGA, hv.CanSuspend} {
			if slices.Contains(has, c) != want {
				t.Errorf("%s: %s is announced: %t, want %t", arch, c, !want, want)
			}
		}
		if !slices.Contains(has, hv.CanSave) {
			t.Errorf("%s: no save", arch)
		}
	}
}

func TestFirmwareFile(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		files []string
		want  string
	}{{nil, ""}, {[]string{"/nowhere/a", there, "b"}, there}, {[]string{"/nowhere/a", "b"}, "b"}} {
		if got := (platform{firmwareFiles: c.files}).firmwareFile(); got != c.want {
			t.Errorf("%v: %q, want %q", c.files, got, c.want)
		}
	}
}
