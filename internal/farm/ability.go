package farm

import (
	"cmp"
	"slices"
)

// Abilities of a node's hypervisor, as its agent announces them.
const (
	AbilityMacOS        = "macos"                // runs macOS guests
	AbilityAnkaImages   = "anka-images"          // its macOS guests are archives of anka, and never raw disks
	AbilityPC           = "pc"                   // runs all other guests
	AbilitySave         = "save"                 // saves guests
	AbilitySuspend      = "suspend"              // saves running guests with their memory
	AbilityMAC          = "mac"                  // a guest can have a requested MAC address
	AbilityIdentity     = "identity"             // a guest can have a requested hardware UUID and serial number
	AbilityVGA          = "vga"                  // a guest can have a standard VGA controller
	AbilityNetworkHost  = "network-host"         // a guest can have the network mode host
	AbilityDisconnected = "network-disconnected" // a guest can have the network mode disconnected

	// AbilityLazyPull is the ability to start VMs before all of their version is on the node.
	AbilityLazyPull = "lazy-pull"
	// AbilityTakeOver is the ability to let a start take over the VM of a standby of a pool.
	AbilityTakeOver = "take-over"
	// AbilityBridge is the ability to attach a guest to a network of the host.
	AbilityBridge = "bridge"
)

// The guest operating systems of templates. An empty one is not known, and is not macOS.
const (
	OSLinux   = "linux"
	OSMacOS   = "macos"
	OSWindows = "windows"
)

// GuestOSes lists the operating systems that a template can name.
var GuestOSes = []string{OSLinux, OSMacOS, OSWindows}

// announcesGuests reports whether the agent announces which guests its node runs. Agents before that
// ran guests of PCs only, and had all that can be requested of them.
func (i *NodeInfo) announcesGuests() bool {
	return slices.Contains(i.Abilities, AbilityMacOS) || slices.Contains(i.Abilities, AbilityPC)
}

// RunsMacOS reports whether the node runs macOS guests.
func (i *NodeInfo) RunsMacOS() bool { return slices.Contains(i.Abilities, AbilityMacOS) }

// RunsPCs reports whether the node runs guests other than macOS.
func (i *NodeInfo) RunsPCs() bool { return i.has(AbilityPC) }

// RunsOS reports whether the node runs guests of an operating system; "" is an unknown one.
func (i *NodeInfo) RunsOS(name string) bool {
	if name == OSMacOS {
		return i.RunsMacOS()
	}
	return i.RunsPCs()
}

// RunsGuestOf reports whether the node runs the guest of a template's version.
func (i *NodeInfo) RunsGuestOf(r *TemplateRef) bool {
	return i.RunsOS(r.OS) && r.macImageAbility()&^i.RequestableAbilities() == 0
}

// has reports whether the node has an ability that agents announce since they announce guests.
func (i *NodeInfo) has(ability string) bool {
	return !i.announcesGuests() || slices.Contains(i.Abilities, ability)
}

// CanSave reports whether the node's hypervisor can save guests, or that is not known: agents that do
// not announce their guests report it when they are asked to save one.
func (i *NodeInfo) CanSave() bool { return i.has(AbilitySave) }

// CanSuspend reports whether the node can save running guests of an operating system.
func (i *NodeInfo) CanSuspend(guestOS string) bool {
	return guestOS != OSMacOS && i.has(AbilitySuspend)
}

// AbilitySet is a set of the abilities that instances can request, a bit for each.
type AbilitySet uint8

// The abilities of a set.
const (
	CanSetMAC AbilitySet = 1 << iota
	CanSetIdentity
	HasVGA
	HasNetworkHost
	HasNetworkDisconnected
	RunsAnkaImages // starts macOS guests from archives of anka
	RunsMacDisks   // starts macOS guests from raw disks
	TakesOver      // lets a start take over the VM of a standby

	// AllAbilities is the set of all of them.
	AllAbilities = 1<<iota - 1
)

// requestable maps the abilities of a set to what agents announce.
var requestable = []struct {
	bit  AbilitySet
	name string
}{
	{CanSetMAC, AbilityMAC},
	{CanSetIdentity, AbilityIdentity},
	{HasVGA, AbilityVGA},
	{HasNetworkHost, AbilityNetworkHost},
	{HasNetworkDisconnected, AbilityDisconnected},
	{RunsAnkaImages, AbilityAnkaImages},
}

// RequestableAbilities returns those that the node has of what instances can request.
func (i *NodeInfo) RequestableAbilities() AbilitySet {
	var out AbilitySet
	for _, a := range requestable {
		if i.has(a.name) {
			out |= a.bit
		}
	}
	if !slices.Contains(i.Abilities, AbilityAnkaImages) {
		out |= RunsMacDisks // which matters only for nodes that run macOS guests
	}
	if slices.Contains(i.Abilities, AbilityTakeOver) {
		out |= TakesOver
	}
	return out
}

// macImageAbility returns the ability to read the images of a macOS guest; none for other guests.
func (r *TemplateRef) macImageAbility() AbilitySet {
	switch {
	case r.OS != OSMacOS:
		return 0
	case r.AnkaImage:
		return RunsAnkaImages
	}
	return RunsMacDisks
}

// RequestedAbilities returns what the instance and its template need of a node. A saved state is not
// counted: its requirements are compared as a whole.
func (i *Instance) RequestedAbilities() AbilitySet {
	out := i.Template.macImageAbility()
	for _, row := range []struct {
		bit   AbilitySet
		isSet bool
	}{
		{CanSetMAC, i.MAC != "" || i.Options.MACAddress != "" || i.Template.SetsMAC},
		{CanSetIdentity, i.Options.HardwareUUID != "" || i.Options.HardwareSerial != ""},
		{HasVGA, cmp.Or(i.Options.Video, i.Template.Video) == VideoVGA},
		{HasNetworkHost, i.NetworkMode() == NetworkHost},
		{HasNetworkDisconnected, i.NetworkMode() == NetworkDisconnected},
		{TakesOver, i.Pool != ""},
	} {
		if row.isSet {
			out |= row.bit
		}
	}
	return out
}

// VideoVGA is the standard VGA controller in requests and configurations.
const VideoVGA = "fbuf"
