package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

// Limits of a configuration. They are those of the nodes, which start nothing beyond them: a template that no
// node can ever start is refused when it is pushed, not when a user waits for an instance.
const (
	maxCores     = 512
	minRAM       = 64       // MiB
	maxRAM       = 16 << 20 // MiB
	maxDrives    = 64
	maxNICs      = 8
	maxPortRules = 256 // rules of one card
	maxPort      = 65535
)

var (
	networkModes = []string{"", "shared", "host", "bridge", "disconnected", "nat"}
	firmwares    = []string{"", "bios", "uefi"}
	protocols    = []string{"", "tcp", "udp"}
	diskFormats  = []string{"", "raw", "qcow2", api.FormatAnka}

	diskFormatNames = strings.Join(diskFormats[1:], ", ")

	ramPattern = regexp.MustCompile(`^([1-9][0-9]{0,8})(MB?|GB?)?$`)
)

// checkConfig refuses a configuration that does not decode into the known fields, or whose values no node can
// serve. It ignores unknown fields. arch is that of the push.
func checkConfig(raw json.RawMessage, files []api.PushFile, arch string) error {
	var c api.TemplateConfig
	if err := json.Unmarshal(raw, &c); err != nil {
		return wrongTypeError(err)
	}
	for _, check := range []error{
		checkRAM(c.RAM), checkCPU(c.CPU), checkDrives(c.HardDrives, files), checkNICs(c.NetworkCards),
		checkFirmware(c.Firmware),
		checkNVRAM(c.NVRAM), checkState(c.StateFile, files), checkGuest(c, arch),
	} {
		if check != nil {
			return check
		}
	}
	return nil
}

// invalidField is the refusal of one field of the configuration.
func invalidField(field, format string, args ...any) error {
	return farm.Invalid("config."+field, format, args...)
}

// jsonKindNames maps Go kinds to names for JSON values in error messages.
var jsonKindNames = map[reflect.Kind]string{
	reflect.Struct: "an object", reflect.Map: "an object", reflect.Pointer: "an object", reflect.Slice: "a list",
	reflect.String: "text", reflect.Int: "a whole number", reflect.Bool: "true or false",
}

// wrongTypeError returns the field that has a wrong type.
func wrongTypeError(err error) error {
	if isBadBase64(err) {
		return invalidField("apple", "hardware_model and machine_id must be base64")
	}
	e, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return farm.Invalid("config", "configuration is not one JSON object")
	}
	kind := jsonKindNames[e.Type.Kind()]
	if e.Type == reflect.TypeFor[[]byte]() {
		kind = "text in base64"
	}
	if kind == "" {
		kind = "of another type"
	}
	return invalidField(e.Field, "must be %s", kind)
}

func checkRAM(text string) error {
	if text == "" {
		return nil
	}
	if !ramPattern.MatchString(text) {
		return invalidField("ram", "must be a size such as 512M or 4G, not %q", text)
	}
	if n := ramMiB(text); n < minRAM || n > maxRAM {
		return invalidField("ram", "is %s: want %d MiB to %d MiB", text, minRAM, maxRAM)
	}
	return nil
}

// ramMiB returns a size of memory in MiB; 0 for one that cannot be represented or has another form.
func ramMiB(text string) int {
	m := ramPattern.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	if strings.HasPrefix(m[2], "G") {
		n *= 1024
	}
	return n
}

func checkCPU(cpu *api.ConfigCPU) error {
	if cpu != nil && (cpu.Cores < 1 || cpu.Cores > maxCores) {
		return invalidField("cpu.cores", "is %d: want 1 to %d", cpu.Cores, maxCores)
	}
	return nil
}

func checkDrives(drives []api.ConfigDrive, files []api.PushFile) error {
	if len(drives) > maxDrives {
		return invalidField("hard_drives", "are %d: want at most %d", len(drives), maxDrives)
	}
	used := map[string]bool{}
	for i, d := range drives {
		isDisk := func(f api.PushFile) bool { return f.Name == d.File && f.Kind == api.FileDisk }
		field := fmt.Sprintf("hard_drives[%d]", i)
		at := slices.IndexFunc(files, isDisk)
		switch {
		case at < 0:
			return invalidField(field+".file", "is %q, which is not a disk of this push", d.File)
		case used[d.File]:
			return invalidField(field+".file", "is %q, which another drive has", d.File)
		case !slices.Contains(diskFormats, d.Format):
			return invalidField(field+".format", "must be one of %s, not %q", diskFormatNames, d.Format)
		case (d.Format == api.FormatAnka) != (files[at].Format == api.FormatAnka):
			return invalidField(field+".format", "is %q, but the file of this push has the format %q", d.Format,
				files[at].Format)
		}
		used[d.File] = true
	}
	return nil
}

func checkNICs(cards []api.ConfigNIC) error {
	if len(cards) > maxNICs {
		return invalidField("network_cards", "are %d: want at most %d", len(cards), maxNICs)
	}
	for i, card := range cards {
		field := fmt.Sprintf("network_cards[%d]", i)
		if !slices.Contains(networkModes, card.Mode) {
			return invalidField(field+".mode", "must be one of %s, not %q", strings.Join(networkModes[1:], ", "),
				card.Mode)
		}
		if _, err := net.ParseMAC(card.MACAddress); card.MACAddress != "" && err != nil {
			return invalidField(field+".mac_address", "is %q, which is not a MAC address", card.MACAddress)
		}
		if len(card.PortRules) > maxPortRules {
			return invalidField(field+".port_forwarding_rules", "are %d: want at most %d", len(card.PortRules),
				maxPortRules)
		}
		for j, rule := range card.PortRules {
			if err := checkPort(fmt.Sprintf("%s.port_forwarding_rules[%d]", field, j), rule); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkPort(field string, p api.ConfigPort) error {
	_, badIP := netip.ParseAddr(p.HostIP)
	switch {
	case p.GuestPort < 1 || p.GuestPort > maxPort:
		return invalidField(field+".guest_port", "is %d: want 1 to %d", p.GuestPort, maxPort)
	case p.HostPort < 0 || p.HostPort > maxPort:
		return invalidField(field+".host_port", "is %d: want 0 to %d", p.HostPort, maxPort)
	case !slices.Contains(protocols, p.Protocol):
		return invalidField(field+".protocol", "must be tcp or udp, not %q", p.Protocol)
	case p.HostIP != "" && badIP != nil:
		return invalidField(field+".host_ip", "is %q, which is not an IP address", p.HostIP)
	case !layout.ValidText(p.RuleName, 255):
		return invalidField(field+".rule_name", "must have at most 255 bytes and no control characters")
	}
	return nil
}

func checkFirmware(boot *api.ConfigBoot) error {
	if boot != nil && !slices.Contains(firmwares, boot.Type) {
		return invalidField("firmware.type", "must be bios or uefi, not %q", boot.Type)
	}
	return nil
}

func checkState(name string, files []api.PushFile) error {
	isState := func(f api.PushFile) bool { return f.Name == name && f.Kind == api.FileState }
	if name != "" && !slices.ContainsFunc(files, isState) {
		return invalidField("state_file", "is %q, which is not a saved state of this push", name)
	}
	return nil
}

func checkNVRAM(v any) error {
	switch v.(type) {
	case nil, bool, string:
		return nil
	}
	return invalidField("nvram", "must be true, false or a path")
}
