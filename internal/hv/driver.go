// Package hv defines hypervisor drivers: the one small interface through which a node agent starts,
// inspects and ends virtual machines on its own host.
//
// It has no driver and starts no process; the drivers are its sub-packages (qemu, sim), and hvtest
// runs every one of them through the same suite.
//
// Invariant: a VM that a driver ever started is reported by List until Delete has removed it,
// whatever was killed in between, agent or hypervisor.
package hv

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Driver starts and ends VMs on this host. Its methods may be called from many goroutines. The
// caller serializes the calls for one VM, with one exception: Delete may be called once the context
// of a running call was canceled and that call has returned.
//
// A driver that holds connections or goroutines also implements io.Closer;
// closing a driver never stops a VM.
type Driver interface {
	// Describe names the driver, the hypervisor and what this host can do. It returns the result of
	// a probe made once and is cheap to repeat.
	Describe(ctx context.Context) (Host, error)

	// Start creates the VM's directory and its private disks if they do not exist, boots it, and
	// returns when the guest is ready: its agent answers, with NeedNetwork it has an address, and
	// its USB devices are attached. A VM with that ID which already runs is returned as it is. A
	// start that fails or is canceled leaves a stopped VM with a Failure behind, for Delete to
	// remove.
	Start(ctx context.Context, spec Spec) (VM, error)

	// Stop ends a VM and keeps its disks. Stopping a stopped VM succeeds.
	Stop(ctx context.Context, id string, how StopMode) error

	// Delete ends a VM by force and removes everything that was made for it. Deleting an unknown VM
	// succeeds. The base images stay.
	Delete(ctx context.Context, id string) error

	// Exec runs a command in the guest and waits for its end. A command that ran and failed is a
	// Result, not an error; an error means that the result is unknown or that nothing ran.
	Exec(ctx context.Context, id string, cmd Command) (Result, error)

	// List returns every VM of this driver, including those of earlier agents, ordered by ID. It
	// reads memory and the process table, never the guest.
	List(ctx context.Context) ([]VM, error)

	// Get returns one VM, or ErrNotFound.
	Get(ctx context.Context, id string) (VM, error)
}

// The errors that a caller distinguishes. Everything else is a failure of the host, the hypervisor
// or the guest, and its text names which.
var (
	// ErrNotFound: no VM has this ID.
	ErrNotFound = errors.New("VM not found")
	// ErrNotRunning: the VM exists and does not run.
	ErrNotRunning = errors.New("the VM is not running")
	// ErrRefused: the request is malformed or asks for something that this driver cannot do.
	// Repeating it cannot help.
	ErrRefused = errors.New("refused")
	// ErrBootTimeout: the guest was not ready within Spec.BootTimeout.
	ErrBootTimeout = errors.New("the guest was not ready in time")
)

// Host is the result of Describe.
type Host struct {
	Driver         string       // "qemu", "sim"
	Version        string       // hypervisor version, "7.2.22"
	Accelerator    string       // "kvm", "hvf", "tcg", "sim": probed, not guessed
	Machine        string       // machine type new VMs get, versioned: "pc-q35-7.2"
	CPU            string       // CPU model new VMs get: "host", "max"
	HostCPU        string       // what a state depends on in the host's own CPU; "" = nothing
	Arch           string       // guest architecture, "amd64" or "arm64"
	Capabilities   []Capability // what this driver can do, sorted
	LicenseKind    string       // kind of the hypervisor's license; "" = none is needed
	LicenseExpires string       // when that ends: RFC 3339 or a day; "" = never
	VLANs          []int        // IDs that Spec.VLAN may have, in ascending order
}

// PCCapabilities returns the abilities of a driver for PCs that has all that a Spec can request of one.
func PCCapabilities() []Capability {
	return []Capability{CanPC, CanSetMAC, CanSetIdentity, CanVGA, CanNetworkHost, CanDisconnect}
}

// HasCapability reports whether the host has an ability.
func (h Host) HasCapability(c Capability) bool {
	return slices.Contains(h.Capabilities, c)
}

// Capability names something that only some drivers can do.
type Capability string

// The abilities that hvtest checks.
const (
	CanBoot    Capability = "real-guest"     // a real operating system boots
	CanForward Capability = "port-rules"     // port rules reach a real guest port
	CanPersist Capability = "survives-agent" // VMs continue when the agent is killed
	CanSandbox Capability = "sandbox"        // the hypervisor process is confined
	CanSave    Capability = "save"           // Saver is implemented
	CanSuspend Capability = "suspend"        // it saves running guests, and Start accepts a State
	CanRestart Capability = "restart"        // Restarter is implemented
	CanResize  Capability = "disk-size"      // respects Spec.DiskBytes
	CanVNC     Capability = "vnc"            // respects Spec.VNC
	CanConsole Capability = "console"        // implements ConsoleDriver
	CanUSB     Capability = "usb"            // respects Spec.USB
	CanBridge  Capability = "bridge"         // offers NetworkBridge
	CanIsolate Capability = "no-loopback"    // keeps guests off the host's loopback
	CanLimit   Capability = "cgroup"         // limits the host's resources that a VM uses

	// Every driver has one of these two, or both.
	CanMacOS Capability = "macos" // runs macOS guests: specs with Apple
	CanPC    Capability = "pc"    // runs all other guests: specs with PC

	// CanAnkaImages goes with CanMacOS: the disks of macOS guests are of FormatAnka, and never raw.
	CanAnkaImages Capability = "anka-images"

	CanSetMAC      Capability = "mac"                  // respects Spec.MAC
	CanSetIdentity Capability = "identity"             // respects PC.HardwareUUID and PC.Serial
	CanVGA         Capability = "vga"                  // has VideoVGA
	CanNetworkHost Capability = "network-host"         // offers NetworkHost
	CanDisconnect  Capability = "network-disconnected" // offers NetworkDisconnected
)

// StopMode selects how a VM is ended.
type StopMode int

// The two ways to stop.
const (
	// StopOrderly asks the guest to shut down, waits a bounded time, then forces.
	StopOrderly StopMode = iota
	// StopForce ends the hypervisor immediately; the guest is not asked.
	StopForce
)

// String names the mode for logs.
func (m StopMode) String() string {
	if m == StopForce {
		return "force"
	}
	return "orderly"
}

// Status is the state of a VM as its host sees it.
type Status string

// The states of a VM. A VM whose start is in progress counts as running.
const (
	Running   Status = "running"
	Stopped   Status = "stopped"
	Suspended Status = "suspended"
)

// VM is one virtual machine. It is a value: a caller may keep and change it.
type VM struct {
	ID, Name, UUID string
	Status         Status
	PID            int        // hypervisor process; 0 when stopped or when there is none
	IP             string     // address inside the guest; "" until known
	MAC            string     // of the network card; "" when unknown
	VNCPort        int        // 0 when the screen cannot be reached
	Ports          []PortRule // with the host ports in effect
	CPUs, MemoryMB int
	MacOS          bool // its guest is macOS
	CreatedAt      time.Time
	StartedAt      time.Time // zero before the first start
	StoppedAt      time.Time // zero while running
	Accelerator    string    // of its last start
	Version        string    // hypervisor version of its last start
	Labels         map[string]string
	Failure        string // why it ended without a request; "" otherwise
	// FailureClass classifies Failure; "": the driver does not know more than that.
	FailureClass farm.FailureClass
}
