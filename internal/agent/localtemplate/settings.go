package localtemplate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

// The choices of a template's settings.
var (
	Archs     = []string{"amd64", "arm64"}
	Networks  = []string{"shared", "host", "bridge", "disconnected", "nat"}
	Firmwares = []string{hv.FirmwareBIOS, hv.FirmwareUEFI}
)

// The settings of a template without its own.
const (
	DefaultCPUs     = 2
	DefaultMemoryMB = 4096
)

// maxNameBytes is in bytes; a hypervisor accepts 255, and the prefix of an instance's name has to fit, too.
const maxNameBytes = 128

// Settings change a template. A nil or zero field keeps the current value.
type Settings struct {
	Name        string
	Arch        string
	CPUs        int
	MemoryMB    int
	NetworkMode string
	Firmware    string
	Ports       []api.ConfigPort // replaces all rules; not nil and empty: none
}

func (s Settings) check() error {
	switch {
	case s.Name != "" && strings.TrimSpace(s.Name) == "":
		return farm.Invalid("name", "must not consist of spaces")
	case s.Name != "" && (len(s.Name) > maxNameBytes || strings.ContainsFunc(s.Name, unicode.IsControl)):
		return farm.Invalid("name", "must have at most %d bytes and no control characters", maxNameBytes)
	case s.Arch != "" && !slices.Contains(Archs, s.Arch):
		return farm.Invalid("arch", "unknown architecture %q: want one of %s", s.Arch, strings.Join(Archs, ", "))
	case s.CPUs < 0 || s.CPUs > hv.MaxCPUs:
		return farm.Invalid("cpu", "%d virtual CPUs: want 1 to %d", s.CPUs, hv.MaxCPUs)
	case s.MemoryMB != 0 && (s.MemoryMB < hv.MinMemoryMB || s.MemoryMB > hv.MaxMemoryMB):
		return farm.Invalid("ram", "%d MiB of memory: want %d to %d", s.MemoryMB, hv.MinMemoryMB, hv.MaxMemoryMB)
	case s.NetworkMode != "" && !slices.Contains(Networks, s.NetworkMode):
		return farm.Invalid("network", "unknown network mode %q: want one of %s", s.NetworkMode,
			strings.Join(Networks, ", "))
	case s.Firmware != "" && !slices.Contains(Firmwares, s.Firmware):
		return farm.Invalid("firmware", "unknown firmware %q: want one of %s", s.Firmware,
			strings.Join(Firmwares, ", "))
	}
	return nil
}

// config is a template's configuration object. Fields that this program does not know are preserved.
type config struct {
	rawFields map[string]json.RawMessage
	parsed    api.TemplateConfig
}

func parseConfig(data []byte) (config, error) {
	var c config
	if err := json.Unmarshal(data, &c.rawFields); err != nil {
		return c, fmt.Errorf("read template configuration: %w", err)
	}
	if err := json.Unmarshal(data, &c.parsed); err != nil {
		return c, fmt.Errorf("read template configuration: %w", err)
	}
	if c.rawFields == nil {
		c.rawFields = map[string]json.RawMessage{}
	}
	return c, nil
}

// apply sets the settings in the object.
func (c *config) apply(s Settings) {
	v := &c.parsed
	if s.CPUs != 0 {
		v.CPU = &api.ConfigCPU{Cores: s.CPUs}
	}
	if s.MemoryMB != 0 {
		v.RAM = strconv.Itoa(s.MemoryMB) + "M"
	}
	if s.Firmware != "" {
		v.Firmware = &api.ConfigBoot{Type: s.Firmware}
	}
	if s.NetworkMode != "" || s.Ports != nil {
		if len(v.NetworkCards) == 0 {
			v.NetworkCards = []api.ConfigNIC{{Mode: Networks[0]}}
		}
		card := &v.NetworkCards[0]
		if s.NetworkMode != "" {
			card.Mode = s.NetworkMode
		}
		if s.Ports != nil {
			card.PortRules = s.Ports
		}
	}
}

// encode encodes the object: the known fields from the view, the others unchanged.
func (c *config) encode() ([]byte, error) {
	known, err := json.Marshal(c.parsed)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(known, &fields); err != nil {
		return nil, err
	}
	if c.rawFields == nil {
		c.rawFields = map[string]json.RawMessage{}
	}
	maps.Copy(c.rawFields, fields)
	return json.MarshalIndent(c.rawFields, "", "  ")
}

// memoryMB reads the object's memory size; 0 when it has none or an unreadable one.
func (c *config) memoryMB() int {
	n, err := bytesize.Parse("ram", c.parsed.RAM, bytesize.MB)
	if err != nil {
		return 0
	}
	return int(n / bytesize.MB)
}

func (c *config) cpus() int {
	if c.parsed.CPU == nil {
		return 0
	}
	return c.parsed.CPU.Cores
}

func (c *config) network() (mode string, rules []api.ConfigPort) {
	for i, card := range c.parsed.NetworkCards {
		if i == 0 {
			mode = card.Mode
		}
		rules = append(rules, card.PortRules...)
	}
	return mode, rules
}

// firmware returns the kind of firmware; "" for a Mac.
func (c *config) firmware() string {
	if c.parsed.Apple != nil {
		return ""
	}
	if c.parsed.Firmware == nil || c.parsed.Firmware.Type == "" {
		return hv.FirmwareBIOS
	}
	return c.parsed.Firmware.Type
}
