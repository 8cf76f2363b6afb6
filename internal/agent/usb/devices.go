package usb

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// Device is a device that is plugged into the host.
type Device struct {
	Location    string `json:"location"` // <bus>-<port>[.<port>...], as the kernel names it
	ID          string `json:"id"`       // vendor and product, as 05ac:12a8
	ProductName string `json:"title"`    // as the device reports it
	Serial      string `json:"serial"`
	Hub         bool   `json:"hub,omitempty"` // other devices are attached to it: it is never offered
}

// SysfsDevicesDir is where a Linux host lists its USB devices, with a directory for each.
const SysfsDevicesDir = "/sys/bus/usb/devices"

// The limits for reading a host's devices.
const (
	maxDevices = 1000
	maxText    = 128 // bytes of a text that a device reports
)

// hubClass is the device class of hubs, as the kernel writes it.
const hubClass = "09"

// ReadDevices returns the devices of the host, ordered by location. It fails on a host that does not list
// its devices this way, which only Linux does.
func ReadDevices(tree string) ([]Device, error) {
	entries, err := os.ReadDir(tree)
	if errors.Is(err, fs.ErrNotExist) {
		return nil,
			farm.Refused("USB devices of this host cannot be listed (%s not found); claims require Linux",
				tree)
	}
	if err != nil {
		return nil, fmt.Errorf("list USB devices: %w", err)
	}
	var list []Device
	for _, e := range entries {
		if locationForm.MatchString(e.Name()) && len(list) < maxDevices {
			if d, ok := readDevice(filepath.Join(tree, e.Name())); ok {
				list = append(list, d)
			}
		}
	}
	slices.SortFunc(list, func(a, b Device) int { return strings.Compare(a.Location, b.Location) })
	return list, nil
}

// readDevice reads one device; ok is false when it was unplugged in the meantime.
func readDevice(dir string) (d Device, ok bool) {
	vendor, product := readAttribute(dir, "idVendor"), readAttribute(dir, "idProduct")
	d = Device{
		Location: filepath.Base(dir), ID: strings.ToLower(vendor + ":" + product), Serial: readAttribute(dir, "serial"),
		ProductName: strings.TrimSpace(readAttribute(dir, "manufacturer") + " " + readAttribute(dir, "product")),
		Hub:         readAttribute(dir, "bDeviceClass") == hubClass,
	}
	return d, idForm.MatchString(d.ID)
}

// readAttribute reads an attribute from the kernel; the device chose some of them.
func readAttribute(dir, name string) string {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxText))
	if err != nil {
		return ""
	}
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(raw), ""))
	return strings.TrimSpace(clean)
}
