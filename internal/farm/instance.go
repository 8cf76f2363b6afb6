package farm

import (
	"cmp"
	"fmt"
	"time"
)

// InstanceState is the state of an instance as clients see it.
type InstanceState string

// The instance states of the API. Gone is not a state of the API: it stands for a record that has
// been removed.
const (
	Scheduling      InstanceState = "Scheduling"
	Pulling         InstanceState = "Pulling"
	Started         InstanceState = "Started"
	Stopping        InstanceState = "Stopping"
	Stopped         InstanceState = "Stopped"
	Terminating     InstanceState = "Terminating"
	Terminated      InstanceState = "Terminated"
	Errored         InstanceState = "Error"
	Pushing         InstanceState = "Pushing"
	InstanceRemoved InstanceState = ""
)

// InstanceStates lists the states of the API.
var InstanceStates = []InstanceState{
	Scheduling, Pulling, Started, Stopping, Stopped, Terminating, Terminated, Errored, Pushing,
}

// Instance is one virtual machine that a client requested: the request, its placement, and the
// reported status of the VM. The assignment is part of the record, so that a placement is one
// compare-and-swap. A stored Instance is never changed in place: copy it with Clone, change the
// copy, commit.
type Instance struct {
	ID         string         `json:"id"` // UUIDv7, so that new records go to the right edge of the store
	Name       string         `json:"name,omitempty"`
	ExternalID string         `json:"external_id,omitempty"`
	Metadata   map[string]any `json:"metadata,omitempty"` // values: string, integer or bool
	State      InstanceState  `json:"state"`
	Message    string         `json:"message,omitempty"`
	// Failure is why it failed, and stays after its termination; nil: it did not fail.
	Failure  *Failure     `json:"failure,omitempty"`
	Template TemplateRef  `json:"template"`
	Options  StartOptions `json:"options"`
	GroupID  string       `json:"group_id,omitempty"`
	Caller   string       `json:"caller,omitempty"` // whose limits it counts against; "": not known
	Owner    string       `json:"owner,omitempty"`  // for fairness: key id, host part of the external id, or root
	Registry string       `json:"registry,omitempty"`
	// PermissionGroup is the group that requested the instance where resource rights on nodes are
	// enforced: it is placed only on nodes on which that group may start instances. "": they were
	// not enforced.
	PermissionGroup string `json:"permission_group,omitempty"`

	// Pool is the pool that booted it ahead, as long as it is a standby: no caller has asked for it. A start that
	// claims it clears Pool and sets Claimed.
	Pool    string     `json:"pool,omitempty"`
	Claimed *PoolClaim `json:"claimed,omitempty"`
	// MissedPool is the pool from which the start could have claimed a standby, had one been ready.
	MissedPool string `json:"missed_pool,omitempty"`

	NodeID   string `json:"node_id,omitempty"`   // set by a placement, kept to the end
	NodeName string `json:"node_name,omitempty"` // as it was when placed
	Claim    string `json:"claim,omitempty"`     // token of this placement; reports with another one are refused

	PullProgress float64       `json:"progress,omitempty"` // 0..1, of the pull
	VM           *VMInfo       `json:"vm,omitempty"`       // nil until known
	Script       *ScriptResult `json:"script,omitempty"`   // nil until the startup script ended
	// ScriptOutput is what the monitored startup script has printed; nil: nothing, or its result is known. It stays
	// when the VM ends without a result.
	ScriptOutput *ScriptOutput `json:"script_output,omitempty"`
	StatusNumber int64         `json:"status_no,omitempty"`
	// StartAborted reports that the controller aborted the start without a report of the node, which is
	// ordered to end any VM of it; up to then the slot stays used.
	StartAborted bool `json:"recall,omitempty"`
	// Transitions are the changes of State since it was created, the oldest first.
	Transitions []Transition `json:"transitions,omitempty"`
	Task        *NodeTask    `json:"task,omitempty"` // nil: its node only runs the VM

	USBLocation string `json:"usb,omitempty"` // location of the device assigned on placement; see Options.USBDevice
	// of the managed addresses, in capitals; reserved as long as the record exists
	MAC string `json:"mac,omitempty"`

	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	Placed  time.Time `json:"placed,omitzero"`
	// BootStarted is when the node last began to start the VM, with the template version at hand.
	BootStarted time.Time `json:"boot_started,omitzero"`
	Started     time.Time `json:"started,omitzero"`
	NodeLostAt  time.Time `json:"lost,omitzero"`     // since when its node is offline
	Finished    time.Time `json:"finished,omitzero"` // when it became Terminated
	TTL         int64     `json:"ttl,omitempty"`     // seconds; 0: it may live indefinitely
	Expires     time.Time `json:"expires,omitzero"`  // when its time to live is over
}

// Clone copies the record; maps and pointers are shared, since their targets are
// replaced and never changed in place.
func (i *Instance) Clone() *Instance {
	c := *i
	return &c
}

// AwaitsPlacement reports whether the instance waits for a node.
func (i *Instance) AwaitsPlacement() bool { return i.State == Scheduling && i.NodeID == "" }

// OnNode reports whether the record may still have a VM on its node.
func (i *Instance) OnNode() bool { return i.NodeID != "" && i.State != Terminated }

// UsesCapacity reports whether the instance uses capacity of its node. One in Error keeps its slot
// as long as its VM exists, or may exist.
func (i *Instance) UsesCapacity() bool {
	return i.OnNode() && (i.State != Errored || i.StartAborted || (i.VM != nil && i.VM.Status != VMDeleted))
}

// SlotUse is what an instance uses a slot of its node for.
type SlotUse uint8

// The uses of a slot.
const (
	SlotUnused  SlotUse = iota // it uses no capacity
	SlotOther                  // its VM is prepared, stopped or ended
	SlotRunning                // its VM runs
	SlotFailed                 // it is in Error, and its VM is still there or may be
)

// SlotUse returns what the instance uses a slot of its node for.
func (i *Instance) SlotUse() SlotUse {
	switch {
	case !i.UsesCapacity():
		return SlotUnused
	case i.State == Errored:
		return SlotFailed
	case i.VM != nil && i.VM.Status == VMRunning:
		return SlotRunning
	}
	return SlotOther
}

// AfterStepTimeout returns the record after the instance has failed without a report of its node: class is the cause,
// why the message. An instance that never started is recalled from its node, which may still be working on it.
func (i *Instance) AfterStepTimeout(now time.Time, class FailureClass, why string) *Instance {
	to, ok := NextInstanceState(i.State, Expired)
	if !ok || to == InstanceRemoved {
		return i
	}
	n := i.Clone()
	n.StartAborted = i.Started.IsZero() && i.NodeID != ""
	n.Failure = &Failure{class, i.CurrentStep()}
	n.EnterState(to, now)
	n.Message, n.Updated = why, now
	n.FinishTask()
	return n
}

// AfterTerminate returns the record after a request to end the instance, which has precedence over
// everything in progress; the same one where that changes nothing.
func (i *Instance) AfterTerminate(now time.Time) *Instance {
	to, ok := NextInstanceState(i.State, Terminate)
	if !ok {
		return i
	}
	n := i.Clone()
	n.EnterState(to, now)
	n.Message, n.Updated, n.StartAborted = "", now, false
	if !n.NodeLostAt.IsZero() {
		n.Message = n.offlineMessage()
	}
	n.FinishTask()
	return n
}

// AfterNodeLost returns the record once the node of the instance is offline; the instance keeps its
// state.
func (i *Instance) AfterNodeLost(now time.Time) *Instance {
	to, ok := NextInstanceState(i.State, NodeLost)
	if !ok || !i.NodeLostAt.IsZero() {
		return i
	}
	n := i.Clone()
	n.EnterState(to, now)
	n.NodeLostAt, n.Updated = now, now
	if to != Errored { // the reason of the failure is more useful
		n.Message = n.offlineMessage()
	}
	return n
}

// offlineMessage returns the message of an instance whose node is offline.
func (i *Instance) offlineMessage() string {
	if i.State == Terminating {
		return fmt.Sprintf("Node %s is offline; the VM is removed when it returns", i.NodeName)
	}
	return fmt.Sprintf("Node %s is offline; the instance continues when it returns", i.NodeName)
}

// AfterNodeBack returns the record once the node of the instance is no longer offline.
func (i *Instance) AfterNodeBack(now time.Time) *Instance {
	to, ok := NextInstanceState(i.State, NodeBack)
	if !ok || i.NodeLostAt.IsZero() {
		return i
	}
	n := i.Clone()
	n.EnterState(to, now)
	n.NodeLostAt, n.Updated = time.Time{}, now
	if to != Errored {
		n.Message = ""
	}
	return n
}

// AfterNodeRemoved returns the record once the node of the instance is no longer in the cloud: no
// agent can confirm the end of its VM.
func (i *Instance) AfterNodeRemoved(now time.Time) *Instance {
	if i.State == Terminating {
		return i.terminated(now)
	}
	n := i.AfterStepTimeout(now, FailureNodeRemoved, "Its node was removed from the cloud")
	if n != i {
		n.StartAborted = false
	}
	return n
}

// AfterGroupDeleted returns the record of an instance that waits in a node group which is deleted;
// name is "" where it is not known.
func (i *Instance) AfterGroupDeleted(now time.Time, name string) *Instance {
	if !i.AwaitsPlacement() {
		return i
	}
	if name != "" {
		name = " " + name
	}
	return i.AfterStepTimeout(now, FailureGroupDeleted,
		fmt.Sprintf("Its node group%s was deleted while it waited", name))
}

// terminated returns the final record of an instance of which nothing is left.
func (i *Instance) terminated(now time.Time) *Instance {
	n := i.Clone()
	n.EnterState(Terminated, now)
	n.Finished, n.Updated, n.Message = now, now, ""
	n.FinishTask()
	if n.VM != nil {
		vm := *n.VM
		vm.Status = VMDeleted
		n.VM = &vm
	}
	return n
}

// taskVerbs describe what the tasks do with an instance, for a refusal.
var taskVerbs = map[InstanceEvent]string{SaveBegun: "saved", Restart: "restarted"}

// CheckTask returns why the instance cannot get the task that begins with an event; nil when it can.
func (i *Instance) CheckTask(event InstanceEvent) error {
	verb := taskVerbs[event]
	switch {
	case i.State == Pushing:
		return Refused("Instance %s cannot be %s: a save of it is in progress", i.ID, verb)
	case i.State != Started:
		return Refused("Instance %s cannot be %s: its state is %s, and it must be Started", i.ID, verb,
			i.State)
	case i.Task != nil:
		return Refused("Instance %s cannot be %s: a restart is in progress; try again when it is done", i.ID,
			verb)
	case !i.NodeLostAt.IsZero():
		return Refused("Instance %s cannot be %s: its node %s is offline; try again when it is back", i.ID,
			verb, i.NodeName)
	}
	return nil
}

// SetTTL starts a time to live; 0 removes it.
func (i *Instance) SetTTL(ttl time.Duration, now time.Time) {
	i.TTL, i.Expires = 0, time.Time{}
	if ttl > 0 {
		i.TTL, i.Expires = int64(ttl/time.Second), now.Add(ttl)
	}
}

// WorksOn reports whether an instance, nil for none, works on a task.
func (i *Instance) WorksOn(task string) bool { return i != nil && i.Task != nil && i.Task.ID == task }

// TemplateRef names one version of a template, as resolved when the instance was created.
type TemplateRef struct {
	ID        string            `json:"id"` // UUID
	Name      string            `json:"name"`
	Tag       string            `json:"tag"`
	Version   int               `json:"version"`    // serial number, 0-indexed
	ContentID string            `json:"content_id"` // immutable id of the bytes; caches and locality use it
	Arch      string            `json:"arch"`       // amd64 or arm64
	Size      int64             `json:"size"`       // bytes of the whole version
	CPUs      int               `json:"cpus"`
	MemoryMB  int               `json:"memory_mb"`
	Suspended bool              `json:"suspended,omitempty"` // the version holds a saved state
	Needs     StateRequirements `json:"needs,omitzero"`      // what that state asks of a node
	Network   string            `json:"network,omitempty"`   // mode of its first card; "" is shared
	VLAN      string            `json:"vlan,omitempty"`      // of the saved state
	// OS is linux, macos or windows; "" is unknown, and not macos.
	OS          string `json:"os,omitempty"`
	AnkaImage   bool   `json:"anka_image,omitempty"`    // its macOS guest is an archive of anka, not raw disks
	MinCPUs     int    `json:"min_cpus,omitempty"`      // fewest virtual CPUs of a macOS guest; 0: unknown
	MinMemoryMB int    `json:"min_memory_mb,omitempty"` // least memory of a macOS guest; 0: unknown
	Video       string `json:"video,omitempty"`         // video controller; "" is the node's choice
	SetsMAC     bool   `json:"sets_mac,omitempty"`      // its configuration names the address of its card
}

// StateRequirements is what a saved state requires of a node: it loads only where all of it is
// equal. The zero value requires nothing.
type StateRequirements struct {
	Driver      string `json:"driver"`
	Version     string `json:"version"` // of the hypervisor
	Machine     string `json:"machine"` // versioned machine type
	Accelerator string `json:"accelerator"`
	CPU         string `json:"cpu"`                // CPU model
	HostCPU     string `json:"host_cpu,omitempty"` // of the host, where the model depends on it
}

// The priorities of a start; a lower one is more urgent.
const (
	MinPriority     = 1
	MaxPriority     = 10000
	DefaultPriority = 1000
)

// StartOptions is the part of a start request that the node carries out.
type StartOptions struct {
	Priority     int    `json:"priority"` // 1..10000, lower is more urgent
	PinnedNode   string `json:"pinned_node,omitempty"`
	NameTemplate string `json:"name_template,omitempty"`
	// of a request, and in records of older releases; a secret
	Script []byte `json:"script,omitempty"`
	// record that has the script; "": there is none, or Script
	ScriptID string `json:"script_id,omitempty"`
	// 0: when the network is up, 1: when the VM boots
	ScriptCondition  int                 `json:"script_condition,omitempty"`
	ScriptMonitoring bool                `json:"script_monitoring,omitempty"`
	ScriptTimeout    int                 `json:"script_timeout,omitempty"` // seconds
	ScriptOnFailure  ScriptFailureAction `json:"script_on_failure,omitempty"`
	PortOverride     bool                `json:"port_override,omitempty"` // Ports replaces the template's rules
	Ports            []Port              `json:"ports,omitempty"`
	NetworkMode      string              `json:"network_mode,omitempty"`
	NetworkLocal     string              `json:"network_local,omitempty"` // forceOn, forceOff or ""
	CPUs             int                 `json:"cpus,omitempty"`
	MemoryMB         int                 `json:"memory_mb,omitempty"`
	DiskBytes        int64               `json:"disk_bytes,omitempty"` // the first disk grows to this size
	KeepFileSystem   bool                `json:"keep_file_system,omitempty"`
	MACAddress       string              `json:"mac_address,omitempty"`
	HardwareUUID     string              `json:"hardware_uuid,omitempty"`
	HardwareSerial   string              `json:"hardware_serial,omitempty"`
	Video            string              `json:"video,omitempty"`        // fbuf or pg
	VNCPassword      string              `json:"vnc_password,omitempty"` // a secret
	VLAN             string              `json:"vlan,omitempty"`
	USBDevice        string              `json:"usb_device,omitempty"`
}

// NetworkMode returns how the VM is connected.
func (i *Instance) NetworkMode() string {
	return cmp.Or(i.Options.NetworkMode, i.Template.Network, NetworkShared)
}

// VLAN returns the id of the VLAN that the VM is in; "" for none.
func (i *Instance) VLAN() string { return cmp.Or(i.Options.VLAN, i.Template.VLAN) }

// The network modes of the API.
const (
	NetworkShared       = "shared"
	NetworkNAT          = "nat"
	NetworkHost         = "host"
	NetworkBridge       = "bridge"
	NetworkDisconnected = "disconnected"
)

// GuestCPUs returns the number of virtual CPUs that the instance uses.
func (i *Instance) GuestCPUs() int {
	if i.Options.CPUs > 0 {
		return i.Options.CPUs
	}
	return i.Template.CPUs
}

// GuestMemoryMB returns the memory that the instance uses, in MiB.
func (i *Instance) GuestMemoryMB() int {
	if i.Options.MemoryMB > 0 {
		return i.Options.MemoryMB
	}
	return i.Template.MemoryMB
}

// ScriptFailureAction is what happens to a VM whose monitored startup script failed. The numbers are those of
// the API parameter script_fail_handler.
type ScriptFailureAction int

// The fail handlers.
const (
	StopVM   ScriptFailureAction = 0
	KeepVM   ScriptFailureAction = 1
	DeleteVM ScriptFailureAction = 2
)

// VMStatus is the status of a VM inside vminfo.
type VMStatus string

// The VM statuses.
const (
	VMRunning   VMStatus = "running"
	VMStopped   VMStatus = "stopped"
	VMSuspended VMStatus = "suspended"
	VMDeleted   VMStatus = "deleted"
)

// VMInfo is what the node reports about a VM.
type VMInfo struct {
	UUID     string    `json:"uuid"`
	Name     string    `json:"name"`
	Status   VMStatus  `json:"status"`
	Version  string    `json:"version,omitempty"` // of the hypervisor
	CPUs     int       `json:"cpus"`
	MemoryMB int       `json:"memory_mb"`
	IP       string    `json:"ip"`
	HostIP   string    `json:"host_ip"`
	Ports    []Port    `json:"ports,omitempty"`
	MAC      string    `json:"mac,omitempty"`
	VNCPort  int       `json:"vnc_port,omitempty"` // on HostIP; 0: the screen cannot be reached
	PID      int       `json:"pid,omitempty"`
	Accel    string    `json:"accel,omitempty"` // kvm, tcg, hvf, sim
	Created  time.Time `json:"created,omitzero"`
	Accessed time.Time `json:"accessed,omitzero"`
	Started  time.Time `json:"started,omitzero"`
	Stopped  time.Time `json:"stopped,omitzero"`
}

// Port is one port-forwarding rule. HostPort 0 means that the node chooses.
type Port struct {
	Name      string `json:"name"`
	GuestPort int    `json:"guest_port"`
	HostPort  int    `json:"host_port"`
	HostIP    string `json:"host_ip,omitempty"`
	Protocol  string `json:"protocol"`
}

// ScriptResult is the outcome of a startup script.
type ScriptResult struct {
	ExitCode int      `json:"code"` // -1 when it timed out or never ran
	TimedOut bool     `json:"timed_out,omitempty"`
	Stdout   []byte   `json:"stdout,omitempty"` // bytes, so that no escaping lets a record grow
	Stderr   []byte   `json:"stderr,omitempty"`
	Errors   []string `json:"errors,omitempty"`
}

// ScriptOutput is the end of what a startup script without a result has printed.
type ScriptOutput struct {
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
}

// OK reports whether the script succeeded.
func (r *ScriptResult) OK() bool { return r.ExitCode == 0 && !r.TimedOut && len(r.Errors) == 0 }
