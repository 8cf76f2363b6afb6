package qemu

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/buildyard/buildyard/internal/hv"
)

// platform is the machine of the guests of one architecture.
type platform struct {
	arch           string
	binary         string         // the QEMU program
	machinePattern *regexp.Regexp // of a versioned machine type in the list of QEMU: name, major and minor version
	machineOptions string         // of the machine type
	firmware       string         // the kind of firmware that guests have
	firmwareFiles  []string       // the first one that exists, otherwise the last one; nil = that of the machine type
	video          map[string]videoController
	chipArgs       []string // devices at the board's own buses, such as the serial port
	panicDevice    string   // tells QEMU that the guest has panicked
	inputArgs      []string // keyboard and pointer, where the machine type has none
	lacks          []hv.Capability
	probe          probeGuest
}

// platforms are the machines by architecture.
var platforms = map[string]platform{
	"amd64": {
		arch: "amd64", binary: "qemu-system-x86_64",
		machinePattern: regexp.MustCompile(`(?m)^(pc-q35)-(\d+)\.(\d+)\s.*$`),
		firmware:       hv.FirmwareBIOS,
		video: map[string]videoController{
			hv.VideoVGA:    {device: "VGA", layout: "q35-1"},
			hv.VideoVirtIO: {device: "virtio-vga", layout: "q35-1-virtio-vga"},
		},
		chipArgs:    []string{"-device", "isa-serial,chardev=serial", "-device", "vmgenid,guid=auto"},
		panicDevice: "pvpanic",
		probe:       probeByBootSector,
	},
	"arm64": {
		arch: "arm64", binary: "qemu-system-aarch64",
		machinePattern: regexp.MustCompile(`(?m)^(virt)-(\d+)\.(\d+)\s.*$`),
		machineOptions: ",gic-version=max", // that of the default has at most 8 processors
		firmware:       hv.FirmwareUEFI,
		firmwareFiles: []string{
			"/usr/share/AAVMF/AAVMF_CODE.fd", "/usr/share/qemu-efi-aarch64/QEMU_EFI.fd", // Linux distributions
			"edk2-aarch64-code.fd", // QEMU looks for it in its own directory
		},
		video: map[string]videoController{ // VGA cannot be had: it is what guests have that ask for none
			hv.VideoVGA:    {device: "virtio-gpu-pci", layout: "virt-1"},
			hv.VideoVirtIO: {device: "virtio-gpu-pci", layout: "virt-1"},
		},
		chipArgs:    []string{"-serial", "chardev:serial"},
		panicDevice: "pvpanic-pci,addr=0x7",
		inputArgs:   []string{"-device", "usb-kbd,bus=usb.0", "-device", "usb-tablet,bus=usb.0"},
		// Clones of a suspended guest would have the same random numbers: the program that sets new ones
		// and the device that announces a clone are for amd64.
		lacks: []hv.Capability{hv.CanVGA, hv.CanSuspend},
		probe: probeByPowerOff,
	},
}

// platformOf returns the machine of the guests of a QEMU program. "" is the installed one: that for the host's own
// architecture, and without it that for amd64, which emulates.
func platformOf(binary, hostArch string, isInstalled func(string) bool) platform {
	arm, amd := platforms["arm64"], platforms["amd64"]
	if strings.Contains(filepath.Base(binary), "aarch64") {
		return arm
	}
	if binary == "" && hostArch == "arm64" && (isInstalled(arm.binary) || !isInstalled(amd.binary)) {
		return arm
	}
	return amd
}

// isInstalled reports whether a program is in PATH.
func isInstalled(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// firmwareFile returns the file with the firmware; "" is that of the machine type.
func (p platform) firmwareFile() string {
	file := ""
	for _, file = range p.firmwareFiles {
		if _, err := os.Stat(file); err == nil {
			break
		}
	}
	return file
}

// probeGuest is a guest that ends QEMU with a code when it has run.
type probeGuest struct {
	content  []byte
	bytes    int64    // of the file with it
	args     []string // of QEMU; the file is /dev/fdset/1
	exitCode int
}

// probeByBootSector writes 0x10 to the debug-exit port, by which QEMU ends with code
// 2*0x10+1: mov dx,0xf4; mov al,0x10; out dx,al; hlt; jmp back.
var probeByBootSector = probeGuest{
	content: bootSector("\xba\xf4\x00\xb0\x10\xee\xf4\xeb\xfd"),
	bytes:   1 << 20, // the BIOS passes over smaller disks
	args: []string{
		"-m", "32", "-device", "isa-debug-exit,iobase=0xf4,iosize=0x04",
		"-blockdev", "driver=raw,node-name=d,read-only=on,file.driver=file,file.filename=/dev/fdset/1",
		"-device", "virtio-blk-pci,drive=d",
	},
	exitCode: 0x21,
}

func bootSector(code string) []byte {
	sector := make([]byte, 512)
	copy(sector, code)
	sector[510], sector[511] = 0x55, 0xaa
	return sector
}

// probeByPowerOff asks the firmware interface of the machine, PSCI, to switch it off:
// movz w0,#0x8; movk w0,#0x8400,lsl #16 (SYSTEM_OFF); hvc #0; b back. The beginning of the memory has the
// device tree.
var probeByPowerOff = probeGuest{
	content: []byte("\x00\x01\x80\x52\x00\x80\xb0\x72\x02\x00\x00\xd4\x00\x00\x00\x14"),
	bytes:   16,
	args: []string{
		"-m", "64", "-device", "loader,file=/dev/fdset/1,addr=0x40200000,cpu-num=0,force-raw=on",
	},
}
