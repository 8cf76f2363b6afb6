package controllerrest

import (
	"regexp"
	"strconv"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// Limits of the changes that a start makes to the template's configuration.
const (
	maxVCPU        = 512
	minVRAM        = 64       // MiB
	maxVRAM        = 16 << 20 // MiB
	maxDisk        = 64 << 40 // bytes
	maxVNCPassword = 8
)

var diskSizePattern = regexp.MustCompile(`^([1-9][0-9]{0,12})([TGMK])$`)

// diskUnits maps the units of a disk's size to bytes.
var diskUnits = map[string]int64{"T": 1 << 40, "G": 1 << 30, "M": 1 << 20, "K": 1 << 10}

// readMachine reads the parameters that change the VM. It also validates the form of those that are refused later.
func readMachine(p *rest.Params, o *farm.StartOptions) {
	o.CPUs = p.Int("vcpu", 0, 1, maxVCPU)
	o.MemoryMB = p.Int("vram", 0, minVRAM, maxVRAM)
	o.Video = p.OneOf("video_controller", "fbuf", "pg")
	o.NetworkMode = p.OneOf("network_mode", farm.NetworkShared, farm.NetworkNAT, farm.NetworkHost, farm.NetworkBridge,
		farm.NetworkDisconnected)
	o.NetworkLocal = p.OneOf("network_local", "forceOn", "forceOff")
	o.HardwareSerial = p.Text("hw_serial", maxName)
	o.HardwareUUID = hardwareUUIDParam(p)
	o.USBDevice = p.Text("usb_device", maxName)
	o.VNCPassword = vncPasswordParam(p)
	o.DiskBytes, o.KeepFileSystem = diskParam(p)
	p.OneOf("hvapic", "forceOn", "forceOff")
	p.OneOf("csr_active_config", "forceOn")
	p.Text("group", maxName)
	if vlan := p.Int("vlan_tag", 0, 1, farm.MaxVLAN); vlan != 0 {
		o.VLAN = strconv.Itoa(vlan)
	}
	if a := macParam(p, "mac_address"); a != 0 {
		o.MACAddress = a.String()
	}
}

// macParam reads the MAC address of a network card; 0 when it is not given.
func macParam(p *rest.Params, name string) farm.MAC {
	text := p.String(name)
	if text == "" {
		return 0
	}
	a, err := farm.ParseMAC(text)
	if err != nil || a == 0 {
		p.RecordError(name, "must be six pairs of hexadecimal digits with colons between them")
	}
	return a
}

func hardwareUUIDParam(p *rest.Params) string {
	id := p.String("hw_uuid")
	if id != "" && (uuid.Validate(id) != nil || len(id) != len(uuid.Nil.String())) {
		p.RecordError("hw_uuid", "must be a UUID such as 11111111-2222-4333-8444-555555555555")
	}
	return id
}

// vncPasswordParam reads a password. VNC uses only its first eight bytes, and a longer one would seem stronger than
// it is.
func vncPasswordParam(p *rest.Params) string {
	password := p.Text("vnc_password", maxName)
	if len(password) > maxVNCPassword {
		p.RecordError("vnc_password", "must have 1 to %d bytes, which is the limit of VNC", maxVNCPassword)
	}
	return password
}

// diskParam reads the new size of the first disk, in bytes.
func diskParam(p *rest.Params) (size int64, keepFileSystem bool) {
	given := p.Object("disk")
	if given == nil {
		return 0, false
	}
	keepFileSystem = given.Bool("skip_container_resize", false)
	text := given.Required("size")
	if m := diskSizePattern.FindStringSubmatch(text); m != nil {
		n, _ := strconv.ParseInt(m[1], 10, 64) // at most 13 digits
		if n <= maxDisk/diskUnits[m[2]] {
			size = n * diskUnits[m[2]]
		}
	}
	if text != "" && size == 0 {
		given.RecordError("size", "must be a number followed by T, G, M or K, and at most 64T")
	}
	if err := given.Err(); err != nil {
		p.RecordError("disk", "%s", err)
	}
	return size, keepFileSystem
}
