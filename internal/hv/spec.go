package hv

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// NetworkMode is how a guest is connected.
type NetworkMode string

// The network modes.
const (
	// NetworkShared is NAT behind the host's addresses, the default. The guest is reached through
	// port rules.
	NetworkShared NetworkMode = "shared"
	// NetworkNAT is another name of NetworkShared.
	NetworkNAT NetworkMode = "nat"
	// NetworkHost lets the host reach the guest through port rules, and the guest reach nothing.
	NetworkHost NetworkMode = "host"
	// NetworkBridge connects the guest to a network of the host, as a separate machine. It has no port
	// rules.
	NetworkBridge NetworkMode = "bridge"
	// NetworkDisconnected leaves the guest's card without a cable.
	NetworkDisconnected NetworkMode = "disconnected"
)

// Video controllers of a Spec. The empty string means VideoVGA.
const (
	VideoVGA    = "fbuf" // standard VGA
	VideoVirtIO = "pg"   // virtio-gpu
)

// Firmware kinds of a Spec. The empty string means FirmwareBIOS.
const (
	FirmwareBIOS = "bios"
	FirmwareUEFI = "uefi"
)

// Limits that Validate checks in a Spec.
const (
	MaxCPUs     = 512
	MaxMemoryMB = 16 << 20 // 16 TiB
	MinMemoryMB = 64
	MaxDisks    = 16
	MaxPorts    = 256
	MaxDeltas   = 62 // layers above the base of one disk
	MaxVLAN     = 4094

	// DefaultBootTimeout is used when a Spec has none.
	DefaultBootTimeout = 90 * time.Second
)

// Spec describes the VM to start: what every hypervisor has, and the part of its kind.
type Spec struct {
	ID   string // directory name and key: letters, digits, '.', '_', '-'; at most 128
	Name string // for display; any text up to 255 bytes without control characters
	UUID string // machine UUID, 8-4-4-4-12 lower or upper case hex

	// Disks are immutable bases; the driver writes to separate overlays. The first disk is booted.
	Disks    []Disk
	CPUs     int
	MemoryMB int
	Arch     string // "amd64", "arm64"; "" = the host's

	// DiskBytes is the size of the first disk; 0 is that of its image, and a smaller size is
	// refused: a disk can only grow. A driver does not grow the guest's file system; GrowFileSystemCommand
	// does that.
	DiskBytes int64 `json:",omitempty"`

	*PC          // nil in a Mac; without defaults also in a PC that has nothing of it
	Apple *Apple `json:",omitempty"` // nil in a PC

	Network     NetworkMode   // "" = that of the State, else NetworkShared
	Isolated    bool          `json:",omitempty"` // the guest reaches nothing beyond its port rules
	VLAN        int           `json:",omitempty"` // ID of the bridge's VLAN; 0 = that of the State, otherwise none
	MAC         string        `json:",omitempty"` // of the network card; "" = that of the State, else DefaultMAC
	Ports       []PortRule    // none in the modes without user networking
	VNC         *VNC          `json:",omitempty"` // nil = the screen cannot be reached
	BootTimeout time.Duration // 0 = DefaultBootTimeout

	// NeedNetwork reports whether a VM is ready only once the guest has an address. It has no
	// effect in the mode NetworkDisconnected.
	NeedNetwork bool

	// State is the suspended guest to resume from, until a start has succeeded; later starts of the
	// VM boot its disks. nil = boot. A driver without CanSuspend refuses it. Name, UUID and Ports may
	// differ from those of the saved VM; the guest continues seeing the machine it was saved on.
	State *State `json:",omitempty"`

	// Labels are stored with the VM and returned by List. The agent stores in them which instance
	// and claim a VM belongs to.
	Labels map[string]string
}

// Disk is the initial content of one disk of a VM: an immutable base image and the immutable layers
// above it. None of them is ever written to.
type Disk struct {
	Path   string // of the base; absolute
	Format string // of the base: "raw", "qcow2", FormatAnka; never guessed from the content

	// Socket is where an NBD server serves the base until Path is complete: an absolute path. "": Path is complete.
	// Only a DiskMover takes it, and with it Bytes, the size of the base.
	Socket string `json:",omitempty"`
	Bytes  int64  `json:",omitempty"`

	// Deltas are the layers above the base, the lowest first: absolute paths of qcow2 files with
	// the changes, which name no backing file, as Save makes them.
	Deltas []string `json:",omitempty"`
}

// VNC exposes a VM's screen on a port of the host.
type VNC struct {
	Password string // a secret; 1-8 bytes, as the protocol uses no more
	Port     int    // on all IPv4 addresses of the host; 0 = a free one from 5900 up
}

// Equal reports whether two disks consist of the same files.
func (d Disk) Equal(o Disk) bool {
	return d.Path == o.Path && d.Format == o.Format && slices.Equal(d.Deltas, o.Deltas)
}

// PortRule makes a guest port reachable on the host.
type PortRule struct {
	Name      string
	GuestPort int    // 1-65535
	HostPort  int    // 0 = a free one from 10000 up
	HostIP    string // address to listen on; "" = all IPv4 addresses of the host
	Protocol  string // "tcp" or "udp"; "" = "tcp"
}

var (
	idPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	uuidPattern = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)
)

// ValidID reports whether id can be the ID of a VM (and the name of its directory).
func ValidID(id string) bool { return idPattern.MatchString(id) }

// Validate returns an ErrRefused with a sentence for the first setting that no driver supports,
// otherwise nil. A driver refuses what only that driver cannot do.
func (s Spec) Validate() error {
	switch {
	case !ValidID(s.ID):
		return RefusedError("VM id %q: letters, digits, '.', '_' and '-', at most 128", s.ID)
	case !uuidPattern.MatchString(s.UUID):
		return RefusedError("machine UUID %q is not a UUID", s.UUID)
	case len(s.Name) > 255 || !isPrintable(s.Name):
		return RefusedError("VM name %q: at most 255 bytes, no control characters", s.Name)
	case s.CPUs < 1 || s.CPUs > MaxCPUs:
		return RefusedError("%d virtual CPUs: want 1-%d", s.CPUs, MaxCPUs)
	case s.MemoryMB < MinMemoryMB || s.MemoryMB > MaxMemoryMB:
		return RefusedError("%d MiB of memory: want %d-%d", s.MemoryMB, MinMemoryMB, MaxMemoryMB)
	case len(s.Disks) == 0 || len(s.Disks) > MaxDisks:
		return RefusedError("%d disks: want 1-%d", len(s.Disks), MaxDisks)
	case len(s.Ports) > MaxPorts:
		return RefusedError("%d port rules: want at most %d", len(s.Ports), MaxPorts)
	case s.BootTimeout < 0:
		return RefusedError("boot time-out %s is negative", s.BootTimeout)
	}
	for _, d := range s.Disks {
		if len(d.Deltas) > MaxDeltas {
			return RefusedError("%d layers above %s: want at most %d", len(d.Deltas), d.Path, MaxDeltas)
		}
	}
	if s.State != nil && !filepath.IsAbs(s.State.Path) {
		return RefusedError("state file %q is not an absolute path", s.State.Path)
	}
	for _, p := range s.Ports {
		if err := p.Validate(); err != nil {
			return err
		}
	}
	return s.validateMachine()
}

// WaitsForAddress reports whether the guest has to have an address to be ready.
func (s Spec) WaitsForAddress() bool {
	return s.NeedNetwork && s.Network != NetworkDisconnected
}

// Validate returns an ErrRefused with a sentence for a rule that no driver supports, otherwise nil.
func (p PortRule) Validate() error {
	if p.GuestPort < 1 || p.GuestPort > 65535 {
		return RefusedError("port rule %q: guest port %d: want 1-65535", p.Name, p.GuestPort)
	}
	if p.HostPort < 0 || p.HostPort > 65535 {
		return RefusedError("port rule %q: host port %d: want 0-65535", p.Name, p.HostPort)
	}
	if p.Protocol != "" && p.Protocol != "tcp" && p.Protocol != "udp" {
		return RefusedError("port rule %q: protocol %q: tcp or udp", p.Name, p.Protocol)
	}
	if p.HostIP == "" {
		return nil
	}
	if ip, err := netip.ParseAddr(p.HostIP); err != nil || !ip.Is4() {
		return RefusedError("port rule %q: host address %q is not an IPv4 address", p.Name, p.HostIP)
	}
	return nil
}

// RefusedError returns an ErrRefused with a sentence.
func RefusedError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

func isPrintable(s string) bool {
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return false
		}
	}
	return true
}
