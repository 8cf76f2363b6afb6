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

// lookEvery is how often a node with claims lists its devices.
const lookEvery = time.Second

// AvailableDevices lists what a node offers: the devices that are claimed and plugged in. It checks
// the file of claims each time, so that a claim takes effect immediately. Safe for many goroutines.
type AvailableDevices struct {
	claims Claims
	tree   string
	log    *slog.Logger

	mu     sync.Mutex // guards the fields below
	stamp  stamp      // of the file that list was read from
	list   []Claim
	looked time.Time // when devices was read
	last   []api.USBDevice
}

// stamp distinguishes two contents of a file, since each write replaces the file.
type stamp struct {
	at   time.Time
	size int64
	id   os.FileInfo
}

// NewAvailableDevices returns the available devices of a host.
func NewAvailableDevices(claims Claims, tree string, log *slog.Logger) *AvailableDevices {
	return &AvailableDevices{claims: claims, tree: tree, log: log}
}

// Available returns the devices, ordered by their locations. The controller knows which of them are
// assigned to instances.
func (o *AvailableDevices) Available() []api.USBDevice {
	o.mu.Lock()
	defer o.mu.Unlock()
	fresh := o.reread()
	if len(o.list) == 0 {
		o.last = nil
		return nil
	}
	if now := time.Now(); fresh || now.Sub(o.looked) >= lookEvery {
		o.looked = now
		o.last = offered(o.list, o.devices())
	}
	return o.last
}

// reread reads the claims when their file has changed, and reports whether it had. With an
// unreadable file, no devices are offered.
func (o *AvailableDevices) reread() bool {
	info, err := os.Stat(o.claims.file)
	if err != nil {
		fresh := len(o.list) > 0
		o.list, o.stamp = nil, stamp{}
		return fresh
	}
	if o.stamp.same(info) {
		return false
	}
	o.stamp = stamp{info.ModTime(), info.Size(), info}
	if o.list, err = o.claims.List(); err != nil {
		o.log.Warn("reading the USB claims failed; no USB devices are offered", "error", err)
		o.list = nil
	}
	return true
}

func (s stamp) same(info fs.FileInfo) bool {
	return s.id != nil && s.at.Equal(info.ModTime()) && s.size == info.Size() && os.SameFile(s.id, info)
}

// devices returns the plugged-in devices. A host that does not list devices still has those that
// the hypervisor emulates.
func (o *AvailableDevices) devices() []Device {
	list, err := Read(o.tree)
	if err != nil {
		return nil
	}
	return list
}

// offered returns the claimed devices: a claim of the location has priority over one of the kind.
func offered(claims []Claim, devices []Device) []api.USBDevice {
	var out []api.USBDevice
	for _, c := range claims {
		if emulatedForm.MatchString(c.Device) {
			out = append(out, api.USBDevice{Name: c.Name, Location: c.Device})
		}
	}
	for _, d := range devices {
		if c, ok := claimOf(claims, d); ok && !d.Hub {
			out = append(out, api.USBDevice{Name: c.Name, Location: d.Location})
		}
	}
	slices.SortFunc(out, func(a, b api.USBDevice) int { return strings.Compare(a.Location, b.Location) })
	return out
}

// ClaimOf returns the claim of a device; nil when it is not claimed.
func ClaimOf(claims []Claim, d Device) *Claim {
	if c, ok := claimOf(claims, d); ok {
		return &c
	}
	return nil
}

// claimOf returns the claim of a device: that of its location, otherwise that of its kind.
func claimOf(claims []Claim, d Device) (claim Claim, ok bool) {
	for _, c := range claims {
		if c.covers(d) && (!ok || c.Device == d.Location) {
			claim, ok = c, true
		}
	}
	return claim, ok
}
