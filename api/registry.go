package api

import "slices"

// Template is one entry of the template list (GET /registry/v2/vm). Times are epoch seconds, 0 = never.
type Template struct {
	ID   string `json:"id"` // lower-case UUID
	Name string `json:"name"`
	// Size is the number of bytes that the layer files of all versions take on the
	// registry's disk, each layer file counted once.
	Size     int64  `json:"size"`      // bytes of the layer files of all versions
	Arch     string `json:"arch"`      // "amd64", "arm64" or "" when not specified
	LastPull int64  `json:"last_pull"` // epoch seconds; 0: never
	LastPush int64  `json:"last_push"` // epoch seconds
	// LatestTag is the tag of the newest version and VersionCount how many there are; in lists alone.
	LatestTag    string `json:"latest_tag,omitempty"`
	VersionCount int    `json:"version_count,omitempty"`
}

// TemplateDetail is one template with its versions, oldest first (GET /registry/v2/vm?id=).
type TemplateDetail struct {
	Template
	Versions []TemplateVersion `json:"versions"`
}

// TemplateVersion is one tag of a template. Times are epoch seconds, 0 = never.
type TemplateVersion struct {
	Tag         string `json:"tag"`
	Number      int    `json:"number"` // serial number, 0-indexed
	Description string `json:"description"`
	// Images and StateFiles are layer file names ("<64 hex digits>.ank") of the whole chain,
	// disk after disk, each disk's oldest layer first. Never null.
	Images     []string `json:"images"` // layer file names of all disks
	StateFiles []string `json:"state_files"`
	StateFile  string   `json:"state_file"`  // the newest of StateFiles, "" when there is none
	ConfigFile string   `json:"config_file"` // "<template uuid>.yaml"
	NVRAM      string   `json:"nvram"`       // "nvram", or "" when the version has none
	// Size is the number of stored bytes that a node which holds nothing has to pull.
	Size         int64  `json:"size"`
	Arch         string `json:"arch"`                    // "amd64", "arm64" or ""
	CreationDate int64  `json:"creation_date,omitempty"` // registry v2 only
	LastPull     int64  `json:"last_pull"`               // epoch seconds; 0: never
	LastPush     int64  `json:"last_push"`               // epoch seconds
	// ContentID names the bytes of this version permanently: 64 hex digits. After a revert and a new
	// push the same number is other bytes under another content id.
	ContentID string       `json:"content_id,omitempty"` // identity of the content: 64 hex digits
	Increment int64        `json:"increment"`            // bytes that no older version of the template has
	Scan      *ScanSummary `json:"scan,omitempty"`       // summary of the attached scan; nil: none
}

// TemplateConfig is the configuration object of a version (GET /registry/vm/info). The registry keeps
// fields that it does not know, so this type is a view of the stored object and not its limit.
type TemplateConfig struct {
	Name         string             `json:"name,omitempty"`
	UUID         string             `json:"uuid,omitempty"`
	RAM          string             `json:"ram,omitempty"` // size with a unit suffix: "4G", "512M"
	CPU          *ConfigCPU         `json:"cpu,omitempty"`
	HardDrives   []ConfigDrive      `json:"hard_drives,omitempty"`
	USB          *ConfigUSB         `json:"usb,omitempty"`
	NetworkCards []ConfigNIC        `json:"network_cards,omitempty"`
	Firmware     *ConfigBoot        `json:"firmware,omitempty"`
	Display      *ConfigScreen      `json:"display,omitempty"`
	StateFile    string             `json:"state_file,omitempty"` // a file of kind "state" of the same version
	StatePin     *StateRequirements `json:"state_pin,omitempty"`  // with StateFile: where it loads
	NVRAM        any                `json:"nvram,omitempty"`      // bool or path
	Version      int                `json:"version,omitempty"`    // internal configuration version
	Save         string             `json:"save,omitempty"`       // names the save that made the version
	OS           string             `json:"os,omitempty"`         // linux, macos or windows; "": not known, not macos
	Apple        *ConfigApple       `json:"apple,omitempty"`      // of macOS guests on Apple silicon
	// LazyPull defines whether nodes start VMs before they have pulled all of the version: "on", "off" or "auto", which
	// is where the pull would take long. "": as the node is configured.
	LazyPull string `json:"lazy_pull,omitempty"`
}

// ConfigApple is the part of a TemplateConfig that only macOS guests on Apple silicon have. Their first
// drive is the root disk and the second the auxiliary storage, both raw; or their only drive has
// FormatAnka, and then HardwareModel and MachineID may be empty.
type ConfigApple struct {
	HardwareModel []byte `json:"hardware_model,omitempty"` // property list; at most 4 KiB
	MachineID     []byte `json:"machine_id,omitempty"`     // property list; at most 4 KiB
	MinCPUs       int    `json:"cpu_min,omitempty"`        // fewest virtual CPUs
	MinMemoryMB   int    `json:"memory_min,omitempty"`     // least memory, in MiB
	Identity      string `json:"identity,omitempty"`       // of VMs: keep (default) the machine identifier, or new
}

// The identities of the VMs of a ConfigApple.
const (
	IdentityKeep = "keep"
	IdentityNew  = "new"
)

// FormatAnka is the format of a disk that is an archive made by "anka export": a whole macOS guest that
// only nodes with anka can read.
const FormatAnka = "anka"

// ConfigCPU is the processor part of a TemplateConfig.
type ConfigCPU struct {
	Cores int `json:"cores"` // number of vCPUs
}

// ConfigDrive is one disk of a TemplateConfig. File is the name of a file of kind "disk" of the same
// version, which is also its name in the directory that a pull fills.
type ConfigDrive struct {
	PCISlot    int    `json:"pci_slot,omitempty"`   // slot number on the guest's PCI bus
	Controller string `json:"controller,omitempty"` // bus of the drive, such as virtio
	File       string `json:"file"`                 // file name in the version
	Format     string `json:"format,omitempty"`     // "raw", "qcow2" or FormatAnka
}

// StateRequirements are the requirements of a saved state: it loads only on a node and into a VM where all of
// them are equal.
type StateRequirements struct {
	Driver      string `json:"driver"`  // hypervisor driver
	Version     string `json:"version"` // of the hypervisor
	Machine     string `json:"machine"` // versioned machine type
	Accelerator string `json:"accelerator"`
	CPU         string `json:"cpu"`      // CPU model
	HostCPU     string `json:"host_cpu"` // of the host, where the model depends on it
	Layout      string `json:"layout"`   // names the devices and their slots
	Network     string `json:"network"`  // kind of the host network of the guest's card
	VLAN        int    `json:"vlan,omitempty"`
	CPUs        int    `json:"cpus"`
	MemoryMB    int    `json:"memory_mb"`
	Disks       int    `json:"disks"` // number of disks

	// Hardware that the guest has seen, and continues to see.
	Video        string `json:"video"` // video controller
	MAC          string `json:"mac"`   // of the guest's network card
	HardwareUUID string `json:"hardware_uuid"`
	Serial       string `json:"serial"` // serial number that the guest sees
}

// ConfigUSB is the USB part of a TemplateConfig.
type ConfigUSB struct {
	PCISlot int  `json:"pci_slot,omitempty"` // slot number on the guest's PCI bus
	Host    bool `json:"host,omitempty"`     // host devices can be attached
	Tablet  bool `json:"tablet,omitempty"`   // absolute pointing device
}

// ConfigNIC is one network card of a TemplateConfig.
type ConfigNIC struct {
	Mode       string       `json:"mode,omitempty"`     // network mode: shared, nat, host, bridge or disconnected
	PCISlot    int          `json:"pci_slot,omitempty"` // slot number on the guest's PCI bus
	MACAddress string       `json:"mac_address,omitempty"`
	PortRules  []ConfigPort `json:"port_forwarding_rules,omitempty"`
}

// ConfigPort is one port forwarding rule of a ConfigNIC. HostPort 0 lets the node choose.
type ConfigPort struct {
	RuleName  string `json:"rule_name"`
	Protocol  string `json:"protocol,omitempty"`  // "tcp" when empty
	HostIP    string `json:"host_ip,omitempty"`   // address of the node that is bound; "": all
	HostPort  int    `json:"host_port,omitempty"` // 0: the node chooses one
	GuestPort int    `json:"guest_port"`
}

// ConfigBoot is the firmware part of a TemplateConfig: "bios" or "uefi".
type ConfigBoot struct {
	Type string `json:"type,omitempty"` // firmware: bios or uefi
}

// ConfigScreen is the display part of a TemplateConfig.
type ConfigScreen struct {
	FrameBuffer *ConfigFrameBuffer `json:"frame_buffer,omitempty"`
	Video       string             `json:"video_controller,omitempty"` // fbuf or pg; the node's choice when empty
}

// ConfigFrameBuffer is the frame buffer of a ConfigScreen.
type ConfigFrameBuffer struct {
	Height   int    `json:"height,omitempty"`
	Width    int    `json:"width,omitempty"`
	PCISlot  int    `json:"pci_slot,omitempty"` // slot number on the guest's PCI bus
	VNCIP    string `json:"vnc_ip,omitempty"`   // listen address of the VNC server
	Password string `json:"password,omitempty"` // of the VNC server
}

// RegistryStatus is the response of GET /registry/status. Damaged names data that was skipped when the store
// was read; it is empty on a healthy store.
type RegistryStatus struct {
	Status  string           `json:"status"` // "Running"
	Version string           `json:"version"`
	Damaged []RegistryDamage `json:"damaged,omitempty"`
}

// RegistryDamage is one template that the registry cannot serve whole, and why.
type RegistryDamage struct {
	ID      string `json:"id"`                // directory name below vm_dir
	Version *int   `json:"version,omitempty"` // nil: the template as a whole
	Problem string `json:"problem"`           // what is wrong with it
}

// CallerRights is the permissions of a caller at a registry (GET /registry/v2/rights).
type CallerRights struct {
	// Permissions are those of the registry that the caller has.
	Permissions []string `json:"permissions"`
	// Enforced reports that permissions are enforced, Managed that rights on single templates are.
	Enforced bool `json:"enforced"` // permissions are enforced at all
	Managed  bool `json:"managed"`  // rights on single templates are enforced
	// Templates maps the id of a template to the rights that the caller has on it. It has
	// no others, and is empty where such rights do not count.
	Templates map[string][]string `json:"templates"`
}

// Allows reports whether the caller has a permission.
func (r *CallerRights) Allows(permission string) bool {
	return slices.Contains(r.Permissions, permission)
}

// On reports whether the caller has a right on a template.
func (r *CallerRights) On(template, right string) bool {
	return !r.Managed || slices.Contains(r.Templates[template], right)
}

// WithoutFiles returns a template without the names of its layer files: a caller that knows them could download
// them.
func (d TemplateDetail) WithoutFiles() TemplateDetail {
	d.Versions = slices.Clone(d.Versions)
	for i := range d.Versions {
		v := &d.Versions[i]
		v.Images, v.StateFiles, v.StateFile = []string{}, []string{}, ""
	}
	return d
}
