package farm

import "cmp"

// FailureClass is the likely cause of a failed instance. The set is closed, and its names are part of the API.
type FailureClass string

// The failure classes.
const (
	FailureTemplate      FailureClass = "template"       // the version is damaged, malformed or removed
	FailureRegistry      FailureClass = "registry"       // the registry cannot be reached, or refuses the node
	FailureDisk          FailureClass = "disk"           // a disk of the node is full, or cannot be read or written
	FailureMemory        FailureClass = "memory"         // the node has too little memory
	FailureHypervisor    FailureClass = "hypervisor"     // the hypervisor ended or refused without another known cause
	FailureLicense       FailureClass = "license"        // a license permits no more guests on the node
	FailureNetwork       FailureClass = "network"        // a host port, bridge or VLAN cannot be used
	FailureConfiguration FailureClass = "configuration"  // the node cannot do what the request or template asks for
	FailureGuestTimeout  FailureClass = "guest_timeout"  // the guest was not ready in time
	FailureGuestStopped  FailureClass = "guest_stopped"  // the guest powered itself off, or its kernel panicked
	FailureStartupScript FailureClass = "startup_script" // the monitored startup script failed
	FailureVMLost        FailureClass = "vm_lost"        // the VM no longer exists on its node
	FailureNodeTimeout   FailureClass = "node_timeout"   // the node is in contact, but did not complete a step in time
	FailureNodeLost      FailureClass = "node_lost"      // the node has been offline for too long
	FailureNodeRemoved   FailureClass = "node_removed"   // the node was removed from the cloud
	FailureGroupDeleted  FailureClass = "group_deleted"  // the node group was deleted while the instance waited
	FailureUnknown       FailureClass = "unknown"        // the node did not report a class
)

// FailureStep is the step in which an instance failed. The set is closed, and its names are part of the API.
type FailureStep string

// The failure steps, in the order in which they come.
const (
	StepPlacement     FailureStep = "placement"
	StepPull          FailureStep = "pull"
	StepCreateDisk    FailureStep = "create_disk"
	StepStartVM       FailureStep = "start_vm"
	StepBoot          FailureStep = "boot"
	StepStartupScript FailureStep = "startup_script"
	StepRun           FailureStep = "run"
	StepSave          FailureStep = "save"
	StepTerminate     FailureStep = "terminate"
)

// FailureSteps lists the steps, in the order in which they come.
var FailureSteps = []FailureStep{
	StepPlacement, StepPull, StepCreateDisk, StepStartVM, StepBoot, StepStartupScript, StepRun, StepSave, StepTerminate,
}

// Failure is why an instance failed, without details: its message has those.
type Failure struct {
	Class FailureClass `json:"class"`
	Step  FailureStep  `json:"step"`
}

// FailureInfo describes a failure class for people.
type FailureInfo struct {
	Class   FailureClass
	Summary string // a sentence about an instance of the class
	Remedy  string // a sentence: what to do
}

// failureInfos lists the classes in the order of their reference.
var failureInfos = []FailureInfo{
	{
		FailureTemplate, "The template version is damaged, malformed or no longer in the registry.",
		"Start another version of the template, or push this one again.",
	},
	{
		FailureRegistry, "The node could not get the template version from the registry.",
		"Check that the registry runs and that the node can reach it, then start the instance again.",
	},
	{
		FailureDisk, "A disk of the node is full, or could not be read or written.",
		"Free space on the node, or check its disk for errors, then start the instance again.",
	},
	{
		FailureMemory, "The node has too little free memory for the VM.",
		"Lower the capacity of the node, or start the instance with less memory.",
	},
	{
		FailureHypervisor, "The hypervisor of the node could not run the VM.",
		"Read the log of the failed start; start the instance on another node to see whether the node is the cause.",
	},
	{
		FailureLicense, "A license permits no more guests on the node.",
		"End a guest on the node, lower its capacity to the number that is licensed, or restart the Mac.",
	},
	{
		FailureNetwork, "A host port, bridge or VLAN that the VM needs could not be used on the node.",
		"Leave the host port to the node, or correct the network configuration of the node.",
	},
	{
		FailureConfiguration, "The node cannot do what the request or the template asks for.",
		"Read the message, and change the request, the template or the configuration of the node.",
	},
	{
		FailureGuestTimeout, "The guest was not ready in time.",
		"Check that the guest boots and runs its guest agent, or raise the start timeout of the controller.",
	},
	{
		FailureGuestStopped, "The guest powered itself off, or its kernel stopped.",
		"Read the end of the serial console in the log of the instance, and correct the template.",
	},
	{
		FailureStartupScript, "The startup script failed.",
		"Read the output of the startup script, and correct the script.",
	},
	{
		FailureVMLost, "The VM no longer exists on its node.",
		"Check whether the VM was removed on the node without the agent, then start the instance again.",
	},
	{
		FailureNodeTimeout, "The node did not complete the step in time.",
		"Read the log of the node agent, then start the instance again.",
	},
	{
		FailureNodeLost, "The node has been offline for too long.",
		"Bring the node back online, or remove it from the cloud; then start the instance again.",
	},
	{
		FailureNodeRemoved, "The node was removed from the cloud.",
		"Start the instance again.",
	},
	{
		FailureGroupDeleted, "The node group of the instance was deleted while it waited.",
		"Start the instance again in another node group.",
	},
	{
		FailureUnknown, "The instance failed for a reason that its node did not classify.",
		"Read the message, and the log of the node agent.",
	},
}

// FailureInfos lists the failure classes, in the order of their reference.
func FailureInfos() []FailureInfo { return append([]FailureInfo(nil), failureInfos...) }

// FailureClasses lists the failure classes, in the same order.
func FailureClasses() []FailureClass {
	list := make([]FailureClass, len(failureInfos))
	for i, info := range failureInfos {
		list[i] = info.Class
	}
	return list
}

var failureInfoOf = func() map[FailureClass]FailureInfo {
	infos := make(map[FailureClass]FailureInfo, len(failureInfos))
	for _, info := range failureInfos {
		infos[info.Class] = info
	}
	return infos
}()

// Info returns the texts of a class; those of FailureUnknown for a class that is not in the set.
func (c FailureClass) Info() FailureInfo {
	if info, ok := failureInfoOf[c]; ok {
		return info
	}
	return failureInfoOf[FailureUnknown]
}

// stepOfState maps a state to the step that an instance in it is in.
var stepOfState = map[InstanceState]FailureStep{
	Scheduling: StepStartVM, Pulling: StepPull, Started: StepRun, Stopping: StepStartupScript, Stopped: StepRun,
	Pushing: StepSave, Terminating: StepTerminate, Terminated: StepTerminate,
}

// CurrentStep returns the step that an instance is in; of one that has failed, the step before that.
func (i *Instance) CurrentStep() FailureStep {
	state := i.State
	if n := len(i.Transitions); state == Errored && n > 1 {
		state = i.Transitions[n-2].State
	}
	switch {
	case state == Scheduling && i.NodeID == "":
		return StepPlacement
	case state == Started && i.runsStartupScript():
		return StepStartupScript
	default:
		return cmp.Or(stepOfState[state], StepStartVM)
	}
}

// runsStartupScript reports whether a monitored startup script of a started instance has not ended.
func (i *Instance) runsStartupScript() bool {
	o := &i.Options
	return o.ScriptMonitoring && (o.ScriptID != "" || len(o.Script) > 0) && i.Script == nil
}

// ShownFailure returns why an instance is in Error; nil for another one. The record of an earlier release
// has no failure: its class is unknown.
func (i *Instance) ShownFailure() *Failure {
	switch {
	case i.State != Errored:
		return nil
	case i.Failure != nil:
		return i.Failure
	default:
		return &Failure{FailureUnknown, i.CurrentStep()}
	}
}
