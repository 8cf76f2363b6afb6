package api

import "time"

// Instance is an instance in the controller's API. The fields without omitempty are always present, the others
// are left out when empty.
type Instance struct {
	InstanceID    string `json:"instance_id,omitempty"`
	InstanceState string `json:"instance_state"`
	Message       string `json:"message,omitempty"` // why it is pending, or why it failed
	// Phase is what happens to it, in more detail than its state: queued, placed, pulling, booting,
	// startup_script, running, restarting, saving, stopping, stopped, terminating, terminated or failed.
	Phase string `json:"phase"`
	// Failure is why it failed; present only in the state Error.
	Failure       *InstanceFailure `json:"failure,omitempty"`
	Registry      string           `json:"anka_registry"` // address that its node pulls from
	VMID          string           `json:"vmid"`          // UUID of the template
	Tag           string           `json:"tag,omitempty"`
	Version       int              `json:"version,omitempty"` // serial number of the version, 0-indexed
	VMInfo        *VMInfo          `json:"vminfo,omitempty"`  // absent until known
	NodeID        string           `json:"node_id,omitempty"`
	InflightReqID string           `json:"inflight_reqid,omitempty"` // own ID while scheduled or pulled
	TS            time.Time        `json:"ts"`                       // last change of the record
	CRTime        time.Time        `json:"cr_time"`                  // when the instance was requested
	Progress      float64          `json:"progress"`                 // 0..1
	GroupID       string           `json:"group_id"`                 // node group that it must run in; "": any
	Name          string           `json:"name,omitempty"`           // chosen by the client
	ExternalID    string           `json:"external_id,omitempty"`    // chosen by the client
	Owner         string           `json:"owner,omitempty"`          // key ID, host part of the external ID, or root
	Started       time.Time        `json:"started,omitzero"`         // when it was in the state Started first
	Metadata      map[string]any   `json:"metadata,omitempty"`
	MACAddress    string           `json:"mac_address,omitempty"` // of the guest's network card
	Arch          string           `json:"arch,omitempty"`
	VLAN          string           `json:"vlan"`                     // VLAN ID as text; "": none
	USBDevice     string           `json:"usb_device"`               // requested claim name or location; "": none
	StartupScript *ScriptResult    `json:"startup_script,omitempty"` // only when monitored
	// ScriptOutput is what a monitored startup script has printed while it runs, or had printed when its VM ended
	// without a result. Only the response for a single instance has it, until StartupScript is present.
	ScriptOutput *ScriptOutput `json:"startup_script_output,omitempty"`
	TTL          int64         `json:"ttl,omitempty"`    // seconds that it may live; absent: indefinitely
	Expires      time.Time     `json:"expires,omitzero"` // when it is terminated automatically
}

// InstanceFailure is why an instance failed. Class and step are of closed sets.
type InstanceFailure struct {
	// Class is the likely cause: template, registry, disk, memory, hypervisor, license, network, configuration,
	// guest_timeout, guest_stopped, startup_script, vm_lost, node_timeout, node_lost, node_removed,
	// group_deleted or unknown.
	Class string `json:"class"`
	// Step is when it failed: placement, pull, create_disk, start_vm, boot, startup_script, run, save or
	// terminate.
	Step    string `json:"step"`
	Summary string `json:"summary"`           // one sentence, the same for all failures of the class
	Remedy  string `json:"remedy"`            // one sentence: what to do
	AtNode  string `json:"at_node,omitempty"` // ID of the node; absent: it was never placed

	// SameTemplate is the number of instances in Error now with the same class, template and version, this one
	// included, and SameTemplateNodes the number of nodes on which they failed. SameNode is the number of those
	// with the same class on the same node, of any template. Each is at most 1000. They are present only in the
	// response for a single instance.
	SameTemplate      int `json:"same_template,omitempty"`
	SameTemplateNodes int `json:"same_template_nodes,omitempty"`
	SameNode          int `json:"same_node,omitempty"`
}

// InstanceItem is one element of the list of instances.
type InstanceItem struct {
	InstanceID string   `json:"instance_id"`
	ExternalID *string  `json:"external_id"` // null when unset
	Name       *string  `json:"name"`        // null when unset
	VM         Instance `json:"vm"`          // the instance itself
}

// Explanation describes why an instance is pending or not, and its past states. GET vm adds it as explain when
// requested with explain=1.
type Explanation struct {
	Reason string `json:"reason"` // why the instance is pending; "": it is not
	// Counts are the nodes that cannot start it, by cause: what may pass with time first. Empty when it does not wait.
	Counts []ReasonCount `json:"counts"`
	// Queue is its place among the requests that fit the same nodes; absent when it does not wait.
	Queue *QueuePlace `json:"queue,omitempty"`
	// those that can start it first, the best one first; empty when it does not wait
	Nodes []NodeExplanation `json:"nodes"`
	// Transitions are the changes of its state, and the begin of the phase booting, the oldest first; at most 17.
	Transitions []Transition `json:"transitions"`
	// Fill is how much of its disks is on its node; absent when that is all, or not known to the answering replica.
	Fill *DiskFill `json:"fill,omitempty"`
}

// LongDiskWait is from how many seconds on clients say that a guest waits for its registry.
const LongDiskWait = 5

// DiskFill is how much of the disks of an instance is on its node, while the rest of its version is being pulled. A
// guest that reads something else waits until that was pulled.
type DiskFill struct {
	Fraction float64 `json:"fraction"`            // Bytes of Total, 0..1
	Bytes    int64   `json:"bytes"`               // stored bytes that are on the node
	Total    int64   `json:"total"`               // stored bytes
	Rate     int64   `json:"rate"`                // bytes a second
	Waiting  int     `json:"waiting_s,omitempty"` // seconds for which no read of the guest was answered; 0: none waits
	Problem  string  `json:"problem,omitempty"`   // why the registry sends nothing
}

// ReasonCount is a number of nodes that cannot start a pending instance for the same cause.
type ReasonCount struct {
	Cause     string `json:"cause"`            // state, full, group, architecture and others
	Text      string `json:"text"`             // of the nodes, as in "full" or "outside the group"
	Nodes     int    `json:"nodes"`            // that the caller may see
	Temporary bool   `json:"temporary"`        // it may pass without a change by an operator
	Remedy    string `json:"remedy,omitempty"` // what an operator can do
}

// QueuePlace is the place of a pending instance among the requests that fit the same nodes. It is an estimate: owners
// take turns, and more urgent requests go first.
type QueuePlace struct {
	Position int `json:"position"` // 1 is next
	Waiting  int `json:"waiting"`  // instances that wait for the same nodes, this one included
	// ExpectedSeconds is the position divided by the starts per second of its node group in the last 10 minutes;
	// absent when there were none.
	ExpectedSeconds *int `json:"expected_seconds,omitempty"`
}

// NodeExplanation describes whether a node can start a pending instance.
type NodeExplanation struct {
	NodeID   string `json:"node_id"`
	NodeName string `json:"node_name"`
	CanStart bool   `json:"can_start"`
	Reason   string `json:"reason,omitempty"` // why it cannot
	// Cause and CauseText are those of the ReasonCount that counts the node; absent when it can start it.
	Cause     string `json:"cause,omitempty"`
	CauseText string `json:"cause_text,omitempty"`
	Score     string `json:"score,omitempty"` // how well it suits
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
	Status         string    `json:"status"`  // running, stopped, suspended, deleted
	Version        string    `json:"version"` // of the hypervisor
	CreationDate   time.Time `json:"creation_date"`
	AccessDate     time.Time `json:"access_date"` // when the VM was last used
	StartDate      time.Time `json:"start_date"`
	StopDate       time.Time `json:"stop_date"`
	Timestamp      time.Time `json:"timestamp"` // last change of the instance's record
	CPUCores       int       `json:"cpu_cores"`
	RAM            string    `json:"ram"` // for example 512M
	NodeID         string    `json:"node_id"`
	HostIP         string    `json:"host_ip"` // address of the node
	IP             string    `json:"ip"`      // address of the guest
	VNCPort        int       `json:"vnc_port,omitempty"`
	VNC            string    `json:"vnc_connection_string,omitempty"` // URL of the VNC console
	PortForwarding []Port    `json:"port_forwarding,omitempty"`
}

// Port is an active port-forwarding rule.
type Port struct {
	GuestPort int    `json:"guest_port"`
	HostPort  int    `json:"host_port"` // port of the node that is forwarded
	Protocol  string `json:"protocol"`  // tcp or udp
	Name      string `json:"name"`
}

// ScriptOutput is the end of what a script without a result has printed, at most 16 KiB of each output.
type ScriptOutput struct {
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
}

// ScriptResult is the outcome of a script.
type ScriptResult struct {
	ReturnCode int      `json:"return_code"`      // -1 when it timed out
	Errors     []string `json:"errors,omitempty"` // why the script could not be run
	DidTimeout bool     `json:"did_timeout"`      // its timeout ended the script
	Stdout     string   `json:"stdout"`
	Stderr     string   `json:"stderr"`
}

// Node is a build node in the controller's API. Its integers are never negative.
type Node struct {
	NodeID       string         `json:"node_id"`
	NodeName     string         `json:"node_name"`
	CPUCount     int            `json:"cpu_count"`  // processors of the host
	RAM          int            `json:"ram"`        // GB
	VMCount      int            `json:"vm_count"`   // VMs that run on it
	VCPUCount    int            `json:"vcpu_count"` // of the VMs that run on it
	VRAM         int            `json:"vram"`       // MB
	CPUUtil      float64        `json:"cpu_util"`   // used share of the host's processors, 0..1
	RAMUtil      float64        `json:"ram_util"`   // used share of the host's memory, 0..1
	IPAddress    string         `json:"ip_address"` // address under which its VMs are reached
	State        string         `json:"state"`
	Capacity     int            `json:"capacity"` // VMs that it may run
	Groups       []Group        `json:"groups"`
	AnkaVersion  ProductVersion `json:"anka_version"`    // hypervisor and its license
	USBDevices   []NodeUSB      `json:"usb_devices"`     // may be null
	VLANs        []string       `json:"vlans,omitempty"` // IDs that its guests can be in
	CapacityMode string         `json:"capacity_mode"`   // number (of VMs) or resource (vCPUs and memory)
	VCPUOverride int            `json:"vcpu_override"`   // vCPUs that an operator allows; 0: derived from the host
	RAMOverride  int            `json:"ram_override"`    // MB that an operator allows; 0: derived from the host
	// that VMs may have in the capacity mode resource; absent in the other one
	VCPULimit    int       `json:"vcpu_limit,omitempty"`
	RAMLimit     int       `json:"ram_limit,omitempty"` // MB, likewise
	DiskSize     int64     `json:"disk_size"`           // bytes
	FreeDisk     int64     `json:"free_disk_space"`     // bytes
	DiskUsage    int64     `json:"anka_disk_usage"`     // bytes
	HostArch     string    `json:"host_arch"`           // amd64 or arm64
	Templates    []NodeTag `json:"templates"`           // cached versions
	LastUpdated  time.Time `json:"last_updated"`        // last contact
	Timestamp    int64     `json:"timestamp"`           // epoch seconds
	AgentVersion string    `json:"agent_version"`
	OSVersion    string    `json:"os_version,omitempty"` // of the host: name and version, such as "macOS 15.6.1"
	Processor    string    `json:"processor,omitempty"`  // of the host: its name, such as "Apple M2 Pro"

	Slots *Slots `json:"slots,omitempty"` // VMs that it may run at a time, by what takes their place

	Peer *NodePeer `json:"peer,omitempty"` // absent unless it exchanges versions with other nodes

	UnknownVMs   int       `json:"unknown_vms,omitempty"`             // orphaned VMs
	StateReason  string    `json:"state_reason,omitempty"`            // why it is in its state
	StateSince   time.Time `json:"state_since,omitzero"`              // since when
	Drain        *Drain    `json:"drain,omitempty"`                   // absent unless it is drained
	NoCentralLog bool      `json:"disable_central_logging,omitempty"` // its logs are not sent to the central logs

	Update *NodeUpdate `json:"update,omitempty"` // of its agent; absent without an update, or when it is done

	// seconds by which its clock is ahead of the controller's; absent when unknown to the answering replica
	ClockOffset *float64 `json:"clock_offset,omitempty"`
}

// NodePeer is how a node exchanges versions with other nodes.
type NodePeer struct {
	Address string `json:"address"` // host:port at which others read from it; without a host, that of the node is meant
	// bytes of versions that it sent to other nodes, and read from them, since its agent started
	ServedBytes  int64 `json:"served_bytes"`
	FetchedBytes int64 `json:"fetched_bytes"`
	// Reports is how many nodes got wrong bytes from it within the last minutes, as far as the answering replica knows.
	// Excluded: no node is to read from it now.
	Reports  int  `json:"reports,omitempty"`
	Excluded bool `json:"excluded,omitempty"`
}

// Slots are the VMs that a node, or a cloud, may run at a time, by what takes their place. In the capacity mode
// resource the limits of vCPUs and memory decide about starts, and Free is only what the number of VMs leaves.
type Slots struct {
	Capacity int `json:"capacity"`
	Running  int `json:"running"`  // taken by instances whose VM runs
	Failed   int `json:"failed"`   // by instances in Error whose VM is still there, or may be
	Orphaned int `json:"orphaned"` // by VMs without an instance
	Other    int `json:"other"`    // by instances whose VM is prepared, stopped or ended
	// Free are the others, at least 0; of a cloud those of the nodes that accept starts.
	Free int `json:"free"`
	// Holders are what takes the slots of a node: the instances, the oldest first, and then the orphaned VMs that the
	// answering replica knows. Only of a single node. An instance that the caller may not list has no IDs and no name,
	// nor has an orphaned VM for callers without the permission change_node_config.
	Holders []SlotHolder `json:"holders,omitempty"`
}

// The uses of a slot.
const (
	SlotRunning  = "running"
	SlotFailed   = "failed"
	SlotOrphaned = "orphaned"
	SlotOther    = "other"
)

// SlotHolder is what takes a slot of a node.
type SlotHolder struct {
	Use        string    `json:"use"`                   // running, failed, orphaned or other
	InstanceID string    `json:"instance_id,omitempty"` // absent for an orphaned VM of an unknown instance
	VMID       string    `json:"vm_id,omitempty"`       // on the node; absent while it has none
	Name       string    `json:"name,omitempty"`        // of the instance, or of the VM
	State      string    `json:"state,omitempty"`       // of the instance
	Since      time.Time `json:"since"`                 // since it was placed, or first seen
	Fill       *DiskFill `json:"fill,omitempty"`        // of the instance's disks, as in Explanation
}

// MaxClockOffset is the difference of a node's clock from the controller's from which it is an alarm.
const MaxClockOffset = 5 * time.Second

// ProductVersion is the hypervisor of a node.
type ProductVersion struct {
	Product string `json:"product"` // the hypervisor
	Version string `json:"version"`
	Build   string `json:"build"`   // the accelerator
	License string `json:"license"` // kind of the license
	Expires string `json:"expires"` // end of the license
}

// NodeUSB is a USB device of a node.
type NodeUSB struct {
	Name     string `json:"name"`     // claim name
	Location string `json:"location"` // bus and port, as the host names them
	Busy     bool   `json:"busy"`     // used by an instance, or otherwise in use
}

// NodeTag is a version cached on a node.
type NodeTag struct {
	UUID string `json:"uuid"` // of the template
	Name string `json:"name"` // of the template
	Tag  string `json:"tag"`
}

// ControllerStatus is the body of the controller's status.
type ControllerStatus struct {
	Status          string `json:"status"`           // always "Running"
	Version         string `json:"version"`          // X.Y.Z-<hash>
	RegistryAddress string `json:"registry_address"` // for clients and nodes
	RegistryStatus  string `json:"registry_status"`  // Running or FAIL
	License         string `json:"license"`          // basic, enterprise or enterprise plus

	LicenseExpires time.Time `json:"license_expires,omitzero"` // absent: never

	Maintenance     *Maintenance `json:"maintenance,omitempty"`      // absent unless it is on
	UnknownVMs      int          `json:"unknown_vms,omitempty"`      // orphaned VMs, on all nodes
	RegistryDamaged int          `json:"registry_damaged,omitempty"` // damaged templates and versions of the registry

	Alarms       []string `json:"alarms,omitempty"` // conditions that need an operator: the messages of ActiveAlarms
	ActiveAlarms []Alarm  `json:"active_alarms,omitempty"`

	// Outages are the nodes that are Offline or Unhealthy, by cause; the largest first, at most 20.
	// They have only nodes that the caller may see.
	Outages []Outage `json:"outages,omitempty"`
}

// Outage is a set of nodes that are Offline or Unhealthy for the same reason and since about the same
// time.
type Outage struct {
	State  string `json:"state"`  // Offline or Unhealthy
	Reason string `json:"reason"` // of the first node; Offline: without the length of the silence
	Nodes  int    `json:"nodes"`  // number of affected nodes
	Of     int    `json:"of"`     // number of all nodes that the caller sees

	// FirstContactLost is when the first of the nodes was last in contact; Unhealthy: when it became so.
	FirstContactLost time.Time `json:"first_contact_lost"`
	LastContactLost  time.Time `json:"last_contact_lost"` // the same of the last of the nodes

	Groups        []OutageGroup `json:"groups,omitempty"`         // the most affected first, at most 10
	AddressPrefix string        `json:"address_prefix,omitempty"` // has all addresses, as 10.1.2.0/24; absent: none

	Instances       int       `json:"instances"`         // on these nodes, that are not terminated
	InstancesAtRisk int       `json:"instances_at_risk"` // those that go to Error if the nodes stay away
	ErrorAt         time.Time `json:"error_at,omitzero"` // when the first of them does; absent: none, or in maintenance

	NodeIDs []string `json:"node_ids"` // the first 10 in the order of their names
}

// OutageGroup is a group of nodes with its share of an outage.
type OutageGroup struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Nodes int    `json:"nodes"` // affected nodes of the group
	Of    int    `json:"of"`    // nodes of the group that the caller sees
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
	AlarmNodeClock    = "node_clock"        // of a node differs from the controller's
	AlarmOutage       = "node_outage"       // many nodes are Offline or Unhealthy
	AlarmQueueGrows   = "queue_grows"       // over minutes, and the oldest wait with it
	AlarmRegistryAway = "registry_unreachable"
	AlarmCertificate  = "server_certificate" // of a port of the controller is invalid or expires soon
)

// Alarm is a condition that needs an operator. Name and Subject identify it; Name never changes.
type Alarm struct {
	Name    string    `json:"name"`              // of the condition, such as registry_disk_low
	Subject string    `json:"subject,omitempty"` // the object, where there can be several: the ID of a node
	Since   time.Time `json:"since"`             // when the condition began
	Count   int       `json:"count,omitempty"`   // of the affected objects, where there are several
	Message string    `json:"message"`           // the condition as a sentence
	Action  string    `json:"action,omitempty"`  // the remedy
	Urgent  bool      `json:"urgent,omitempty"`  // instances do not start or records may be lost until it ends
}

// SaveImage is a request to save an instance as a version of a template.
type SaveImage struct {
	ID           string           `json:"id"`
	Status       string           `json:"status"`        // pending, done or error
	Request      SaveImageRequest `json:"request"`       // as it was requested
	Error        *SaveImageError  `json:"error"`         // null unless Status is error
	ScriptResult *ScriptResult    `json:"script_result"` // null until its script has ended
}

// SaveImageRequest is the request of a save, with the keys that clients read.
type SaveImageRequest struct {
	RequestID              string    `json:"RequestId"`
	Priority               int       `json:"Priority"`               // always the default
	Timestamp              time.Time `json:"Timestamp"`              // when the save was requested
	ReserveExpiryTimestamp time.Time `json:"ReserveExpiryTimestamp"` // always the zero time
	RegistryAddr           string    `json:"RegistryAddr"`           // address that the version was pushed to
	VMID                   string    `json:"VMID"`                   // UUID of the VM
	InstanceID             string    `json:"InstanceID"`
	NodeID                 string    `json:"NodeID"`
	TemplateID             string    `json:"TemplateID"` // gets the tag
	NewTemplateName        string    `json:"NewTemplateName"`
	Tag                    string    `json:"Tag"`
	Description            string    `json:"Description"`
	Suspend                bool      `json:"Suspend"`          // memory and devices were saved too
	Script                 string    `json:"Script"`           // "" or a note that a script exists: scripts contain secrets
	DoSuspendTest          bool      `json:"DoSuspendTest"`    // resume a second VM from the save before it is pushed
	RevertBeforePush       bool      `json:"RevertBeforePush"` // remove the version RevertTag and newer ones first
	RevertTag              string    `json:"RevertTag"`
	CancelOnScriptFailure  bool      `json:"CancelOnScriptFailure"`
}

// SaveImageError describes why a save failed: with a Code if its script failed, else with a Type.
type SaveImageError struct {
	Message string `json:"Message"`
	Code    *int   `json:"Code,omitempty"` // exit code of the script that failed
	Type    string `json:"Type,omitempty"` // kind of the failure
}

// SaveImageAnswer is the body of an accepted save.
type SaveImageAnswer struct {
	RequestID string `json:"request_id"`
}
