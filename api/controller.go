package api

import "time"

// Instance is an instance in the controller's API. The fields without omitempty are always present, the others
// are left out when empty.
type Instance struct {
	InstanceID    string         `json:"instance_id,omitempty"`
	InstanceState string         `json:"instance_state"`
	Message       string         `json:"message,omitempty"`
	Registry      string         `json:"anka_registry"`
	VMID          string         `json:"vmid"` // UUID of the template
	Tag           string         `json:"tag,omitempty"`
	Version       int            `json:"version,omitempty"`
	VMInfo        *VMInfo        `json:"vminfo,omitempty"` // absent until known
	NodeID        string         `json:"node_id,omitempty"`
	InflightReqID string         `json:"inflight_reqid,omitempty"`
	TS            time.Time      `json:"ts"`
	CRTime        time.Time      `json:"cr_time"`
	Progress      float64        `json:"progress"` // 0..1
	GroupID       string         `json:"group_id"`
	Name          string         `json:"name,omitempty"`
	ExternalID    string         `json:"external_id,omitempty"`
	Metadata      map[string]any `json:"metadata,omitempty"`
	MACAddress    string         `json:"mac_address,omitempty"`
	Arch          string         `json:"arch,omitempty"`
	VLAN          string         `json:"vlan"`
	USBDevice     string         `json:"usb_device"`
	StartupScript *ScriptResult  `json:"startup_script,omitempty"` // only when monitored
	TTL           int64          `json:"ttl,omitempty"`            // seconds that it may live; absent: indefinitely
	Expires       time.Time      `json:"expires,omitzero"`         // when it is terminated automatically
}

// InstanceItem is one element of the list of instances.
type InstanceItem struct {
	InstanceID string   `json:"instance_id"`
	ExternalID *string  `json:"external_id"` // null when unset
	Name       *string  `json:"name"`        // null when unset
	VM         Instance `json:"vm"`
}

// Explanation describes why an instance is pending or not, and its past states. GET vm adds it as explain when
// requested with explain=1.
type Explanation struct {
	Reason string `json:"reason"`
	// those that can start it first, the best one first; empty when it does not wait
	Nodes []NodeExplanation `json:"nodes"`
	// Transitions are the changes of its state, the oldest first; at most 16.
	Transitions []Transition `json:"transitions"`
}

// NodeExplanation describes whether a node can start a pending instance.
type NodeExplanation struct {
	NodeID   string `json:"node_id"`
	NodeName string `json:"node_name"`
	CanStart bool   `json:"can_start"`
	Reason   string `json:"reason,omitempty"` // why it cannot
	Score    string `json:"score,omitempty"`  // how well it suits
}

// Console describes an instance whose console can be opened. GET vm/console returns it without the upgrade to a
// WebSocket that opens the console.
type Console struct {
	InstanceID string `json:"instance_id"`
	NodeID     string `json:"node_id"` // that is asked to open it
	Open       int    `json:"open"`    // consoles of the instance that are open now
}

// VMInfo is the observed status of a VM. Its integers are never negative.
type VMInfo struct {
	UUID           string    `json:"uuid"`
	Name           string    `json:"name"`
	Status         string    `json:"status"` // running, stopped, suspended, deleted
	Version        string    `json:"version"`
	CreationDate   time.Time `json:"creation_date"`
	AccessDate     time.Time `json:"access_date"`
	StartDate      time.Time `json:"start_date"`
	StopDate       time.Time `json:"stop_date"`
	Timestamp      time.Time `json:"timestamp"`
	CPUCores       int       `json:"cpu_cores"`
	RAM            string    `json:"ram"` // for example 512M
	NodeID         string    `json:"node_id"`
	HostIP         string    `json:"host_ip"`
	IP             string    `json:"ip"`
	VNCPort        int       `json:"vnc_port,omitempty"`
	VNC            string    `json:"vnc_connection_string,omitempty"`
	PortForwarding []Port    `json:"port_forwarding,omitempty"`
}

// Port is an active port-forwarding rule.
type Port struct {
	GuestPort int    `json:"guest_port"`
	HostPort  int    `json:"host_port"`
	Protocol  string `json:"protocol"`
	Name      string `json:"name"`
}

// ScriptResult is the outcome of a script.
type ScriptResult struct {
	ReturnCode int      `json:"return_code"` // -1 when it timed out
	Errors     []string `json:"errors,omitempty"`
	DidTimeout bool     `json:"did_timeout"`
	Stdout     string   `json:"stdout"`
	Stderr     string   `json:"stderr"`
}

// Node is a build node in the controller's API. Its integers are never negative.
type Node struct {
	NodeID       string         `json:"node_id"`
	NodeName     string         `json:"node_name"`
	CPUCount     int            `json:"cpu_count"`
	RAM          int            `json:"ram"` // GB
	VMCount      int            `json:"vm_count"`
	VCPUCount    int            `json:"vcpu_count"`
	VRAM         int            `json:"vram"` // MB
	CPUUtil      float64        `json:"cpu_util"`
	RAMUtil      float64        `json:"ram_util"`
	IPAddress    string         `json:"ip_address"`
	State        string         `json:"state"`
	Capacity     int            `json:"capacity"`
	Groups       []Group        `json:"groups"`
	AnkaVersion  ProductVersion `json:"anka_version"`
	USBDevices   []NodeUSB      `json:"usb_devices"` // may be null
	VLANs        []string       `json:"vlans,omitempty"`
	CapacityMode string         `json:"capacity_mode"`
	VCPUOverride int            `json:"vcpu_override"`
	RAMOverride  int            `json:"ram_override"`
	// that VMs may have in the capacity mode resource; absent in the other one
	VCPULimit    int       `json:"vcpu_limit,omitempty"`
	RAMLimit     int       `json:"ram_limit,omitempty"` // MB, likewise
	DiskSize     int64     `json:"disk_size"`           // bytes
	FreeDisk     int64     `json:"free_disk_space"`     // bytes
	DiskUsage    int64     `json:"anka_disk_usage"`     // bytes
	HostArch     string    `json:"host_arch"`           // amd64 or arm64
	Templates    []NodeTag `json:"templates"`
	LastUpdated  time.Time `json:"last_updated"`
	Timestamp    int64     `json:"timestamp"` // epoch seconds
	AgentVersion string    `json:"agent_version"`

	UnknownVMs   int       `json:"unknown_vms,omitempty"`             // orphaned VMs
	StateReason  string    `json:"state_reason,omitempty"`            // why it is in its state
	StateSince   time.Time `json:"state_since,omitzero"`              // since when
	Drain        *Drain    `json:"drain,omitempty"`                   // absent unless it is drained
	NoCentralLog bool      `json:"disable_central_logging,omitempty"` // its logs are not sent to the central logs

	Update *NodeUpdate `json:"update,omitempty"` // of its agent; absent without an update, or when it is done
}

// ProductVersion is the hypervisor of a node.
type ProductVersion struct {
	Product string `json:"product"`
	Version string `json:"version"`
	Build   string `json:"build"`
	License string `json:"license"`
	Expires string `json:"expires"`
}

// NodeUSB is a USB device of a node.
type NodeUSB struct {
	Name     string `json:"name"`
	Location string `json:"location"`
	Busy     bool   `json:"busy"`
}

// NodeTag is a version cached on a node.
type NodeTag struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
	Tag  string `json:"tag"`
}

// ControllerStatus is the body of the controller's status.
type ControllerStatus struct {
	Status          string `json:"status"`
	Version         string `json:"version"` // X.Y.Z-<hash>
	RegistryAddress string `json:"registry_address"`
	RegistryStatus  string `json:"registry_status"` // Running or FAIL
	License         string `json:"license"`         // basic, enterprise or enterprise plus

	LicenseExpires time.Time `json:"license_expires,omitzero"` // absent: never

	Maintenance *Maintenance `json:"maintenance,omitempty"` // absent unless it is on
	UnknownVMs  int          `json:"unknown_vms,omitempty"` // orphaned VMs, on all nodes
	// RegistryDamaged counts templates and versions that the registry cannot serve whole.
	RegistryDamaged int `json:"registry_damaged,omitempty"`

	Alarms       []string `json:"alarms,omitempty"` // conditions that need an operator: the messages of ActiveAlarms
	ActiveAlarms []Alarm  `json:"active_alarms,omitempty"`
}

// Names of alarms.
const (
	AlarmDataDisk     = "data_disk_low"
	AlarmStoreFull    = "store_full"
	AlarmRegistryDisk = "registry_disk_low"
	AlarmNodeDisk     = "node_disk_low"
	AlarmOrphans      = "orphaned_vms"
	AlarmPackages     = "agent_packages"
	AlarmLicense      = "license"
	AlarmEvents       = "event_backlog"
	AlarmNoAuth       = "no_authentication" // and other machines can connect
)

// Alarm is a condition that needs an operator. Name and Subject identify it; Name never changes.
type Alarm struct {
	Name    string    `json:"name"`              // of the condition, such as registry_disk_low
	Subject string    `json:"subject,omitempty"` // the object, where there can be several: the ID of a node
	Since   time.Time `json:"since"`
	Message string    `json:"message"`
	Action  string    `json:"action,omitempty"` // the remedy
}

// SaveImage is a request to save an instance as a version of a template.
type SaveImage struct {
	ID           string           `json:"id"`
	Status       string           `json:"status"` // pending, done or error
	Request      SaveImageRequest `json:"request"`
	Error        *SaveImageError  `json:"error"`         // null unless Status is error
	ScriptResult *ScriptResult    `json:"script_result"` // null until its script has ended
}

// SaveImageRequest is the request of a save, with the keys that clients read.
type SaveImageRequest struct {
	RequestID              string    `json:"RequestId"`
	Priority               int       `json:"Priority"`
	Timestamp              time.Time `json:"Timestamp"`
	ReserveExpiryTimestamp time.Time `json:"ReserveExpiryTimestamp"`
	RegistryAddr           string    `json:"RegistryAddr"`
	VMID                   string    `json:"VMID"` // UUID of the VM
	InstanceID             string    `json:"InstanceID"`
	NodeID                 string    `json:"NodeID"`
	TemplateID             string    `json:"TemplateID"` // gets the tag
	NewTemplateName        string    `json:"NewTemplateName"`
	Tag                    string    `json:"Tag"`
	Description            string    `json:"Description"`
	Suspend                bool      `json:"Suspend"`
	Script                 string    `json:"Script"` // "" or a note that a script exists: scripts contain secrets
	DoSuspendTest          bool      `json:"DoSuspendTest"`
	RevertBeforePush       bool      `json:"RevertBeforePush"`
	RevertTag              string    `json:"RevertTag"`
	CancelOnScriptFailure  bool      `json:"CancelOnScriptFailure"`
}

// SaveImageError describes why a save failed: with a Code if its script failed, else with a Type.
type SaveImageError struct {
	Message string `json:"Message"`
	Code    *int   `json:"Code,omitempty"`
	Type    string `json:"Type,omitempty"`
}

// SaveImageAnswer is the body of an accepted save.
type SaveImageAnswer struct {
	RequestID string `json:"request_id"`
}
