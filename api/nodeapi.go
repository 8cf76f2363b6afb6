package api

import "time"

// The versions of the node link. A controller refuses a newer and an older one.
const (
	LinkProtocol       = 1 // sent by nodes
	OldestLinkProtocol = 1 // of nodes of the release before
)

// The routes of the node link.
const (
	PathJoin    = "/queue/v1/join"
	PathPoll    = "/queue/v1/poll"
	PathReport  = "/queue/v1/report"
	PathDisjoin = "/queue/v1/disjoin"
	PathPass    = "/queue/v1/pass" //nolint:gosec // a path
	PathConsole = "/queue/v1/console"
	PathPeers   = "/queue/v1/peers"
)

// JoinRequest registers a node: POST PathJoin. A node that joined before and keeps its identity sends NodeID
// and Credential.
type JoinRequest struct {
	Protocol   int      `json:"protocol"`             // version of the node protocol
	Token      string   `json:"token,omitempty"`      // the join token; "" when the caller's credentials allow to join
	NodeID     string   `json:"node_id,omitempty"`    // of a node that joins again
	Credential string   `json:"credential,omitempty"` // the node's current one, when it joins again
	Name       string   `json:"name"`
	Host       string   `json:"host"`               // address under which the node's VMs are reached
	Groups     []string `json:"groups,omitempty"`   // names or ids of node groups
	Capacity   int      `json:"capacity,omitempty"` // 0: the controller's default
	Arch       string   `json:"arch,omitempty"`     // amd64 or arm64

	// Kept names the fields that a joined node repeats from its memory: values that an operator has configured
	// since then stay.
	Kept []string `json:"kept,omitempty"`
}

// The fields of a JoinRequest that may be Kept.
const (
	KeptName     = "name"
	KeptHost     = "host"
	KeptGroups   = "groups"
	KeptCapacity = "capacity"
)

// JoinAnswer is the body of a successful join.
type JoinAnswer struct {
	NodeID     string `json:"node_id"`    // assigned by the controller
	Credential string `json:"credential"` // secret: Authorization: Bearer on the node link
	Registry   string `json:"registry"`   // address the node pulls from

	// UpdateKeys are the public keys of the makers of agent packages, as lines of base64, for a node that has
	// none.
	UpdateKeys string `json:"update_keys,omitempty"`

	Cloud *CloudAnnouncement `json:"cloud,omitempty"` // key and addresses of the cloud
}

// RegistryTokenRequest requests a registry token: POST PathPass.
type RegistryTokenRequest struct {
	Protocol int    `json:"protocol"` // version of the node protocol
	NodeID   string `json:"node_id"`
	// Purpose restricts the token to one purpose. An agent that does not know the field gets a token for all of
	// its current orders, and must request another one when the registry answers 401.
	Purpose *TokenPurpose `json:"purpose,omitempty"`
}

// TokenPurpose is the purpose of a registry token: exactly one of the fields is set. The controller refuses one for
// which the node has no order.
type TokenPurpose struct {
	Pull string `json:"pull,omitempty"` // ID of a template that the node has an order to cache
	Save string `json:"save,omitempty"` // Order.Task of a running save on the node
	Logs string `json:"logs,omitempty"` // id of an instance of the node: to upload its failure logs
	Rows bool   `json:"rows,omitempty"` // to append the node's own rows to the central logs
}

// RegistryTokenResponse is the body of its answer.
type RegistryTokenResponse struct {
	Pass string `json:"pass"` // the token, a secret; "": the registry needs or accepts none
	Life int    `json:"life"` // seconds that it is good for, from now on
}

// PeersRequest asks for nodes that have parts of a version which the node has an order to cache: POST PathPeers. A node
// repeats it while it pulls, and is named to other nodes that do so.
type PeersRequest struct {
	Protocol  int    `json:"protocol"` // version of the node protocol
	NodeID    string `json:"node_id"`
	ContentID string `json:"content_id"`
	// Excluded are IDs of peers that have sent wrong bytes to the node within the last 10 minutes.
	Excluded []string `json:"excluded,omitempty"`
}

// PeersResponse is the body of its answer.
type PeersResponse struct {
	Peers []Peer `json:"peers"` // in no order
}

// Peer is a node that another one may read a version from.
type Peer struct {
	NodeID  string `json:"node_id"`
	Address string `json:"address"`           // host:port, HTTPS
	Key     string `json:"key"`               // hex SHA-256 of its certificate
	Token   string `json:"token"`             // a secret, for the reading node only; valid for 5 minutes
	Pulling bool   `json:"pulling,omitempty"` // it pulls the version now; otherwise it has all of it
}

// PollRequest is the body of POST PathPoll?wait=5s: the heartbeat of a node and its
// question for work. It waits until there is work or wait has passed.
type PollRequest struct {
	Protocol int             `json:"protocol"` // version of the node protocol
	NodeID   string          `json:"node_id"`
	BootID   string          `json:"boot_id"`            // new at every agent start
	InfoHash string          `json:"info_hash"`          // of Info
	Info     *NodeInfo       `json:"info,omitempty"`     // when it changed or was requested
	HeldHash string          `json:"held_hash"`          // of Held
	Held     []InventoryItem `json:"held,omitempty"`     // with HasHeld: everything the node has
	HasHeld  bool            `json:"has_held,omitempty"` // Held is present, though it may be empty
	Usage    *Usage          `json:"usage,omitempty"`    // about every 5 s
	// Fills belong to Usage: how much of their disks is here, of the instances whose version is still being pulled, by
	// their IDs. An agent that does not know the field pulls whole versions only.
	Fills map[string]DiskFill `json:"fills,omitempty"`
	Acks  []Ack               `json:"acks,omitempty"` // orders written to the journal since the last poll
	// bytes that came from registries since the last poll that was answered
	Pulled int64  `json:"pulled,omitempty"`
	Host   string `json:"host,omitempty"` // address, when it changed

	Details []InventoryDetail `json:"details,omitempty"` // requested by Describe of the last response

	Update *UpdateStatus `json:"update,omitempty"` // of the requested update, or of a failed one
}

// Ack acknowledges an order: it is in the node's journal and need not be sent again.
type Ack struct {
	InstanceID string    `json:"instance_id"`    // of the acknowledged order
	Claim      string    `json:"claim"`          // of the acknowledged order
	Kind       OrderKind `json:"kind"`           // of the acknowledged order
	Task       string    `json:"task,omitempty"` // of the order
}

// InventoryItem is one instance on a node: in its journal, as a VM, or both. A VM whose instance is unknown to
// the node itself has only VMID.
type InventoryItem struct {
	InstanceID string `json:"instance_id"`     // "": a VM without an instance
	Claim      string `json:"claim"`           // that the instance was started with
	VMID       string `json:"vm_id,omitempty"` // ID of the VM on the node; "": it has none
}

// InventoryDetail is everything that a node knows about an item of its inventory, so that a controller that
// lost its record can create it again. It contains no secret.
type InventoryDetail struct {
	ID        string `json:"id"`               // Held.InstanceID, or Held.VMID where that is empty
	Ending    bool   `json:"ending,omitempty"` // it is being terminated
	ContentID string `json:"content_id,omitempty"`
	// as ordered, without script text and passwords; nil: not in the journal
	Start  *StartOrder    `json:"start,omitempty"`
	Status InstanceStatus `json:"status"` // the present one
}

// Usage is the resources that the running instances of a node use, refreshed every few seconds.
type Usage struct {
	CPU     float64 `json:"cpu"`      // 0..1
	RAM     float64 `json:"ram"`      // 0..1
	VMs     int     `json:"vms"`      // running
	VCPUs   int     `json:"vcpus"`    // of all running VMs
	VRAM    int     `json:"vram"`     // MB
	FreeMem int     `json:"free_mem"` // MB of memory that is free on the host

	HasDisk    bool  `json:"has_disk,omitempty"`    // FreeDisk and CacheUsage are present; older agents lack them
	FreeDisk   int64 `json:"free_disk,omitempty"`   // bytes
	CacheUsage int64 `json:"cache_usage,omitempty"` // bytes of VMs and cached versions

	// bytes of versions that were sent to other nodes, and read from them, since the agent started
	PeerServed  int64 `json:"peer_served,omitempty"`
	PeerFetched int64 `json:"peer_fetched,omitempty"`
}

// HeaderNodeTime has the time of a node when it sends a poll, in milliseconds since the epoch. It is not in the body:
// an idle node sends the same body every time.
const HeaderNodeTime = "X-Buildyard-Node-Time"

// PollAnswer is the body of a poll.
type PollAnswer struct {
	Orders   []Order `json:"orders,omitempty"`    // to be journaled and acknowledged
	NeedFull bool    `json:"need_full,omitempty"` // send Info and Held in full next time
	Registry string  `json:"registry,omitempty"`  // when it changed
	// CentralLog has the agent send its log to the central logs of the registry. With
	// NoCentralLog, the node's own setting, neither that nor a log of a failed VM leaves it.
	CentralLog   bool `json:"central_log,omitempty"`
	NoCentralLog bool `json:"no_central_log,omitempty"` // no log may leave the node
	// Removed reports that an operator removed this very node from the cloud: the agent removes every VM on it
	// and ends. It is never set for a node that is merely unknown, since the controller may have the wrong
	// records.
	Removed bool `json:"removed,omitempty"`
	// Describe requests details of inventory items with these IDs, which have no record. An agent that does not
	// know the field leaves it unanswered.
	Describe []string `json:"describe,omitempty"`
	// CacheJobs are the cache jobs of the node, which belong to no instance. An agent that does not know the
	// field ignores them.
	CacheJobs []CacheJob `json:"errands,omitempty"`
	// Consoles are requests to open consoles. An agent that does not know the field opens none.
	Consoles []ConsoleRequest `json:"consoles,omitempty"`
	// Update requests another version of the agent. An agent that does not know the field keeps its version.
	Update *AgentUpdate `json:"update,omitempty"`
	// Cloud has the key and the addresses of the cloud. It is the response to a poll with Info.
	Cloud *CloudAnnouncement `json:"cloud,omitempty"`
}

// ConsoleRequest asks a node to open a WebSocket for the console of a VM: GET
// PathConsole?node_id=...&session=... with the credential of the node. Both sides then send binary messages
// with the RFB data of screen and viewer; the close frame may contain a reason. A request may come more than
// once; the controller accepts a session once.
type ConsoleRequest struct {
	Session    string `json:"session"` // a secret
	InstanceID string `json:"instance_id"`
	Claim      string `json:"claim"` // of the instance's placement
}

// OrderKind is the kind of an order.
type OrderKind string

// The order kinds.
const (
	OrderStart     OrderKind = "start"
	OrderSave      OrderKind = "save"
	OrderRestart   OrderKind = "restart"
	OrderTerminate OrderKind = "terminate"
)

// Order asks a node for an action on one instance. Orders are sent at least once; a node recognizes a repeated
// one by InstanceID, Claim, Kind and Task. A terminate order takes precedence over every other and is executed
// whatever its claim.
type Order struct {
	Kind       OrderKind     `json:"kind"`
	InstanceID string        `json:"instance_id"`
	Claim      string        `json:"claim"`             // names the placement that the order belongs to
	Task       string        `json:"task,omitempty"`    // with OrderSave and OrderRestart: names this save or restart
	Start      *StartOrder   `json:"start,omitempty"`   // with OrderStart
	Save       *SaveOrder    `json:"save,omitempty"`    // with OrderSave
	Restart    *RestartOrder `json:"restart,omitempty"` // with OrderRestart
}

// StartOrder is everything a node needs to start an instance.
type StartOrder struct {
	TemplateID   string         `json:"template_id"`
	TemplateName string         `json:"template_name"`
	Tag          string         `json:"tag"`
	Version      int            `json:"version"`
	ContentID    string         `json:"content_id"` // of the version to start
	Registry     string         `json:"registry"`   // address to pull from
	VMName       string         `json:"vm_name"`    // finished, prefix included
	Script       *Script        `json:"script,omitempty"`
	PortOverride bool           `json:"port_override,omitempty"` // Ports replaces the template's rules
	Ports        []NodePortRule `json:"ports,omitempty"`
	StartTimeout int            `json:"start_timeout"`     // seconds, of the start without the pull
	Machine      *Machine       `json:"machine,omitempty"` // changes to the template's VM
	// TakesOver is the claim under which the node runs the VM of this instance as a standby of a pool: the VM
	// continues under the claim of this order. "": the VM is to be started.
	TakesOver string `json:"takes_over,omitempty"`
	// Standby is set while no start has claimed the VM: it is a standby of a pool.
	Standby bool `json:"standby,omitempty"`
}

// Machine is the changes of an order to the template's configuration. The zero value of a field keeps the
// template's value.
type Machine struct {
	CPUs         int    `json:"cpus,omitempty"`
	MemoryMB     int    `json:"memory_mb,omitempty"`
	DiskBytes    int64  `json:"disk_bytes,omitempty"`    // the first disk grows to this size
	KeepFileSys  bool   `json:"keep_file_sys,omitempty"` // leave it to the user to grow the guest's file system
	MAC          string `json:"mac,omitempty"`           // 52:54:00:12:34:56
	HardwareUUID string `json:"hardware_uuid,omitempty"` // as the guest sees it
	Serial       string `json:"serial,omitempty"`        // of the machine, as the guest sees it
	Video        string `json:"video,omitempty"`         // fbuf or pg
	Network      string `json:"network,omitempty"`       // shared, nat, host, bridge or disconnected
	NetworkLocal string `json:"network_local,omitempty"` // forceOn: nothing but the port rules; forceOff
	VNCPassword  string `json:"vnc_password,omitempty"`  // a secret; with it the screen can be reached
	USB          string `json:"usb,omitempty"`           // claim name or location of a device to attach
	USBDevice    string `json:"usb_device,omitempty"`    // location of the very device that was chosen
	VLAN         int    `json:"vlan,omitempty"`          // ID of the VLAN of the guest's bridge; 0: none
}

// SaveOrder requests to save a VM as a version of a template.
type SaveOrder struct {
	Registry    string      `json:"registry"`           // address to push to
	TemplateID  string      `json:"template_id"`        // gets the tag
	NewName     string      `json:"new_name,omitempty"` // the template is made, with this name; "": it must exist
	Tag         string      `json:"tag"`
	Description string      `json:"description,omitempty"`
	Suspend     bool        `json:"suspend"`                // memory and devices too; else the guest is shut down first
	Script      []byte      `json:"script,omitempty"`       // runs before; any bytes; a secret: never logged
	MustSucceed bool        `json:"must_succeed,omitempty"` // a script that fails fails the save
	SanityTest  bool        `json:"sanity_test,omitempty"`  // resume a second VM from the save before it is pushed
	Revert      *PushRevert `json:"revert,omitempty"`       // in the same swap
}

// RestartOrder requests to end a VM by force and to start it from its disks.
type RestartOrder struct {
	VNCPassword *string `json:"vnc_password,omitempty"` // nil: as before; a secret
	USB         *string `json:"usb,omitempty"`          // nil: as before; "": none; location of the chosen device
}

// Script is a startup script.
type Script struct {
	Text       []byte `json:"text"` // any bytes; a secret: never logged
	AtBoot     bool   `json:"at_boot,omitempty"`
	Monitoring bool   `json:"monitoring,omitempty"`
	Timeout    int    `json:"timeout"`    // seconds
	OnFailure  int    `json:"on_failure"` // 0 stop, 1 keep, 2 delete; with Monitoring
}

// NodePortRule is a port rule; HostPort 0 lets the node choose.
type NodePortRule struct {
	Name      string `json:"name"`
	GuestPort int    `json:"guest_port"`
	HostPort  int    `json:"host_port"`         // 0: the node chooses one
	HostIP    string `json:"host_ip,omitempty"` // address of the node that is bound; "": all
	Protocol  string `json:"protocol"`          // tcp or udp
}

// Phase is the progress of a node with an instance. A status contains its phase and everything known, so that a
// lost or repeated report does no harm.
type Phase string

// The phases, in the order in which they come.
const (
	PhaseAccepted     Phase = "accepted"      // in the journal
	PhasePulling      Phase = "pulling"       // see Progress
	PhaseStarting     Phase = "starting"      // version at hand, VM being started
	PhaseRunning      Phase = "running"       // VM ready; a script may be running
	PhaseScriptOK     Phase = "script-ok"     // VM ready, script done
	PhaseScriptFailed Phase = "script-failed" // monitored script failed, its handler not yet done
	PhaseScriptEnded  Phase = "script-ended"  // monitored script failed and its handler is done
	PhaseFailed       Phase = "failed"        // the start failed; no VM is left
	PhaseStopped      Phase = "stopped"       // the VM stopped without an order
	PhaseVanished     Phase = "vanished"      // the VM no longer exists
	PhaseTerminated   Phase = "terminated"    // nothing of it is left
)

// InstanceStatus is a node's report on one instance.
type InstanceStatus struct {
	InstanceID string  `json:"instance_id"`
	Claim      string  `json:"claim"` // names the placement that the status is about
	No         int64   `json:"no"`    // grows with every status of this claim
	Phase      Phase   `json:"phase"`
	Progress   float64 `json:"progress,omitempty"` // 0..1, of the pull
	Message    string  `json:"message,omitempty"`
	// Failure classifies why the instance failed; nil: it did not, or the agent does not know the field.
	Failure *NodeFailure  `json:"failure,omitempty"`
	VM      *NodeVM       `json:"vm,omitempty"`     // facts of the VM; nil: none yet
	Script  *ScriptStatus `json:"script,omitempty"` // result of the startup script
	Task    *TaskStatus   `json:"task,omitempty"`   // the last save or restart that was ordered
	// ScriptOutput is what a monitored startup script that runs has printed so far; nil: nothing, or it does not run.
	ScriptOutput *ScriptOutput `json:"script_output,omitempty"`
}

// NodeFailure is why an instance failed. The names are those of InstanceFailure; the controller replaces a name
// that it does not know.
type NodeFailure struct {
	Class string `json:"class"`
	Step  string `json:"step"`
}

// TaskStage is how far a node is with a save or a restart.
type TaskStage string

// The stages, in the order in which they come; a restart has the first and the last two.
const (
	TaskAccepted TaskStage = "accepted" // in the journal
	TaskScript   TaskStage = "script"   // its script runs
	TaskSaving   TaskStage = "saving"   // disks and state are exported
	TaskTesting  TaskStage = "testing"  // the sanity test runs
	TaskPushing  TaskStage = "pushing"  // see Progress
	TaskDone     TaskStage = "done"     // permanently
	TaskFailed   TaskStage = "failed"   // permanently; the VM runs again, unless the phase differs
)

// TaskStatus is a node's report on a save or a restart. Like a phase it is a level.
type TaskStatus struct {
	ID       string        `json:"id"`                 // Order.Task
	Stage    TaskStage     `json:"stage"`              // see TaskStage
	Progress float64       `json:"progress,omitempty"` // 0..1, of the push
	Message  string        `json:"message,omitempty"`  // with TaskFailed
	Code     int           `json:"code,omitempty"`     // with TaskFailed: exit code of the script that failed it
	Script   *ScriptStatus `json:"script,omitempty"`   // once its script has ended
	Version  *PushResult   `json:"version,omitempty"`  // with TaskDone of a save
}

// NodeVM is a VM as its node sees it.
type NodeVM struct {
	UUID     string         `json:"uuid"`
	Name     string         `json:"name"`
	Status   string         `json:"status"`        // running, stopped, suspended, deleted
	Version  string         `json:"version"`       // of the hypervisor
	Accel    string         `json:"accel"`         // accelerator: kvm, hvf or tcg
	PID      int            `json:"pid,omitempty"` // of the hypervisor process
	CPUs     int            `json:"cpus"`
	MemoryMB int            `json:"memory_mb"`
	IP       string         `json:"ip"`
	HostIP   string         `json:"host_ip"` // address of the node
	MAC      string         `json:"mac,omitempty"`
	VNCPort  int            `json:"vnc_port,omitempty"` // 0: the screen cannot be reached
	Ports    []NodePortRule `json:"ports,omitempty"`    // forwarded ports
	Created  time.Time      `json:"created,omitzero"`
	Started  time.Time      `json:"started,omitzero"`
	Stopped  time.Time      `json:"stopped,omitzero"`
}

// ScriptStatus is the outcome of a startup script.
type ScriptStatus struct {
	Code     int      `json:"code"` // exit code
	TimedOut bool     `json:"timed_out,omitempty"`
	Stdout   string   `json:"stdout,omitempty"`
	Stderr   string   `json:"stderr,omitempty"`
	Errors   []string `json:"errors,omitempty"` // why the script could not be run
}

// Report is the body of POST PathReport. It contains changed statuses and is sent immediately. A node repeats a
// status until it was answered.
type Report struct {
	Protocol  int              `json:"protocol"` // version of the node protocol
	NodeID    string           `json:"node_id"`
	BootID    string           `json:"boot_id"` // new at every agent start
	Seq       int64            `json:"seq"`     // number of the report since the agent's start
	Statuses  []InstanceStatus `json:"statuses"`
	CacheJobs []CacheJobStatus `json:"errands,omitempty"`
}

// ReportAnswer is the response to a report. A status whose claim is not the instance's is ignored; its VM is
// handled like any orphaned VM.
type ReportAnswer struct{}

// NodeInfo is how a node describes itself.
type NodeInfo struct {
	Arch         string         `json:"arch"`
	OS           string         `json:"os"`
	OSVersion    string         `json:"os_version,omitempty"` // name and version, such as "macOS 15.6.1"
	Processor    string         `json:"processor,omitempty"`  // name of the processor, such as "Apple M2 Pro"
	CPUs         int            `json:"cpus"`
	MemoryMB     int            `json:"memory_mb"`
	DiskSize     int64          `json:"disk_size"`  // bytes of the cache's disk
	FreeDisk     int64          `json:"free_disk"`  // rounded down to 64 MiB, and below 1 GiB to 1 MiB
	CacheUsage   int64          `json:"cache_used"` // bytes of the cached versions
	AgentVersion string         `json:"agent_version"`
	Driver       string         `json:"driver"`     // qemu or sim
	Hypervisor   string         `json:"hypervisor"` // version
	Accelerator  string         `json:"accelerator"`
	Machine      string         `json:"machine,omitempty"` // versioned machine type of the hypervisor
	CPUModel     string         `json:"cpu_model,omitempty"`
	HostCPU      string         `json:"host_cpu,omitempty"`    // host CPU properties that a saved state depends on
	License      string         `json:"license,omitempty"`     // of the hypervisor: its kind
	Expires      string         `json:"expires,omitempty"`     // that of the license: RFC 3339, or a day; "": never
	OtherMacOS   int            `json:"other_macos,omitempty"` // macOS guests that run and belong to no instance
	Problem      string         `json:"problem,omitempty"`     // why the node starts no VMs, and the remedy; "": it does
	Abilities    []string       `json:"abilities,omitempty"`   // optional features of the agent and its driver
	Templates    []NodeTemplate `json:"templates,omitempty"`
	USB          []USBDevice    `json:"usb,omitempty"`
	VLANs        []int          `json:"vlans,omitempty"` // ids that guests can be in, rising
	// PeerAddress is where other nodes read versions from this one, host:port; without a host, that of the node is
	// meant. "": nowhere.
	PeerAddress string `json:"peer_address,omitempty"`
	PeerKey     string `json:"peer_key,omitempty"` // hex SHA-256 of the certificate that it shows there
}

// NodeTemplate is one cached version on a node.
type NodeTemplate struct {
	ID        string `json:"id"` // of the template
	Name      string `json:"name"`
	Tag       string `json:"tag"`
	ContentID string `json:"content_id"`
	Size      int64  `json:"size"` // bytes on the node's disk
}

// USBDevice is a device that a node offers.
type USBDevice struct {
	Name     string `json:"name"`     // that it is claimed under; "" when that is its location
	Location string `json:"location"` // bus and port, as the host names them
	Busy     bool   `json:"busy"`     // in use, but not by an instance
}
