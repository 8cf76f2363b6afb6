package usb

import (
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
)

// listInterval is how often a node with claims lists its devices.
const listInterval = time.Second

// AvailableDevices lists what a node offers: the devices that are claimed and plugged in. It checks
// the file of claims each time, so that a claim takes effect immediately. Safe for many goroutines.
type AvailableDevices struct {
	claimsFile ClaimsFile
	devicesDir string
	log        *slog.Logger

	mu            sync.Mutex // guards the fields below
	claimsStamp   fileStamp  // of the file that list was read from
	claimList     []Claim
	devicesReadAt time.Time // when devices was read
	lastDevices   []api.USBDevice
}

// fileStamp distinguishes two contents of a file, since each write replaces the file.
type fileStamp struct {
	modifiedAt time.Time
	sizeBytes  int64
	fileInfo   os.FileInfo
}

// NewAvailableDevices returns the available devices of a host.
func NewAvailableDevices(claims ClaimsFile, tree string, log *slog.Logger) *AvailableDevices {
	return &AvailableDevices{claimsFile: claims, devicesDir: tree, log: log}
}

// Available returns the devices, ordered by their locations. The controller knows which of them are
// assigned to instances.
func (o *AvailableDevices) Available() []api.USBDevice {
	o.mu.Lock()
	defer o.mu.Unlock()
	fresh := o.reloadClaims()
	if len(o.claimList) == 0 {
		o.lastDevices = nil
		return nil
	}
	if now := time.Now(); fresh || now.Sub(o.devicesReadAt) >= listInterval {
		o.devicesReadAt = now
		o.lastDevices = offeredDevices(o.claimList, o.pluggedDevices())
	}
	return o.lastDevices
}

// reloadClaims reads the claims when their file has changed, and reports whether it had. With an
// unreadable file, no devices are offered.
func (o *AvailableDevices) reloadClaims() bool {
	info, err := os.Stat(o.claimsFile.path)
	if err != nil {
		fresh := len(o.claimList) > 0
		o.claimList, o.claimsStamp = nil, fileStamp{}
		return fresh
	}
	if o.claimsStamp.matches(info) {
		return false
	}
	o.claimsStamp = fileStamp{info.ModTime(), info.Size(), info}
	if o.claimList, err = o.claimsFile.List(); err != nil {
		o.log.Warn("reading the USB claims failed; no USB devices are offered", "error", err)
		o.claimList = nil
	}
	return true
}

func (s fileStamp) matches(info fs.FileInfo) bool {
	return s.fileInfo != nil && s.modifiedAt.Equal(info.ModTime()) && s.sizeBytes == info.Size() &&
		os.SameFile(s.fileInfo, info)
}

// pluggedDevices returns the plugged-in devices. A host that does not list devices still has those that
// the hypervisor emulates.
func (o *AvailableDevices) pluggedDevices() []Device {
	list, err := ReadDevices(o.devicesDir)
	if err != nil {
		return nil
	}
	return list
}

// offeredDevices returns the claimed devices: a claim of the location has priority over one of the kind.
func offeredDevices(claims []Claim, devices []Device) []api.USBDevice {
	var out []api.USBDevice
	for _, c := range claims {
		if emulatedForm.MatchString(c.Device) {
			out = append(out, api.USBDevice{Name: c.Name, Location: c.Device})
		}
	}
	for _, d := range devices {
		if c, ok := findClaim(claims, d); ok && !d.Hub {
			out = append(out, api.USBDevice{Name: c.Name, Location: d.Location})
		}
	}
	slices.SortFunc(out, func(a, b api.USBDevice) int { return strings.Compare(a.Location, b.Location) })
	return out
}

// ClaimOf returns the claim of a device; nil when it is not claimed.
func ClaimOf(claims []Claim, d Device) *Claim {
	if c, ok := findClaim(claims, d); ok {
		return &c
	}
	return nil
}

// findClaim returns the claim of a device: that of its location, otherwise that of its kind.
func findClaim(claims []Claim, d Device) (claim Claim, ok bool) {
	for _, c := range claims {
		if c.covers(d) && (!ok || c.Device == d.Location) {
			claim, ok = c, true
		}
	}
	return claim, ok
}
