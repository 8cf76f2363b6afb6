package farm

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// EventsDropped is a Buildyard event: Extra has in "count" how many events were dropped because
// they could not be delivered, and in "target" by which target.
const EventsDropped EventName = "EventsDropped"

// EventNodeDrained is a Buildyard event: nothing is left on a node that is drained.
const EventNodeDrained EventName = "NodeDrained"

// EventAudit is a Buildyard event: a caller made a change that no other event reports. Extra has
// the caller, the credential and the route.
const EventAudit EventName = "Audit"

// EventNodeScanned is a Buildyard event: the host scanner of a node has found other numbers than
// before. Extra has them in "counts".
const EventNodeScanned EventName = "NodeScanned"

// EventVulnerabilityFound is a Buildyard event: a scan found vulnerabilities in a version of a template, or on a node,
// that were not found there before. Extra has in "count" how many, and in "vulnerabilities" at most 100 IDs.
const EventVulnerabilityFound EventName = "VulnerabilityFound"

// EventPeerExcluded is a Buildyard event: a node got bytes of a version from another one that do not
// match their sums, and reads nothing from it for some minutes. Extra has the reader, and in
// "excluded" whether no node is to read from it.
const EventPeerExcluded EventName = "PeerExcluded"

// Buildyard events about the states of nodes. Those of one node have the reason and since when, as
// seconds since 1970; when many nodes change in a short time, one event summarizes them.
const (
	EventNodeOffline    EventName = "NodeOffline"
	EventNodeUnhealthy  EventName = "NodeUnhealthy"
	EventNodeRecovered  EventName = "NodeRecovered"
	EventNodesOffline   EventName = "NodesOffline"
	EventNodesUnhealthy EventName = "NodesUnhealthy"
	EventNodesRecovered EventName = "NodesRecovered"
)

// Buildyard events: an alarm of the cloud began, and ended.
const (
	EventAlarmStarted EventName = "AlarmStarted"
	EventAlarmEnded   EventName = "AlarmEnded"
)

// The groups of events by what they are about.
const (
	vmAction       = "vmAction"
	nodeAction     = "nodeAction"
	templateAction = "templateAction"
	logAction      = "logAction"
	auditAction    = "auditAction"
	alarmAction    = "alarmAction"
	scanAction     = "scanAction"
)

// EventInfo describes an event of the log.
type EventInfo struct {
	Name         EventName
	Group        string   // its sub_type: what it is about
	Description  string   // when it is written
	RequiredKeys []string // further keys, in addition to those of every event
	OptionalKeys []string // further keys that only some events have
}

// templateKeys name a version of a template.
var templateKeys = []string{"template_id", "template_name", "tag", "version"}

// Further keys of the events about states of nodes and about alarms.
var (
	nodeStateKeys  = []string{"node_id", "node_name", "node_state", "former_state", "since", "reason"}
	nodeStatesKeys = []string{"node_count", "node_ids", "since", "reason"}
	alarmKeys      = []string{"alarm", "subject", "since", "message"}
)

// events lists all events, in the order of their reference.
var events = []EventInfo{
	{
		EventStartVM, vmAction, "An instance was requested.",
		[]string{"template_id", "tag", "priority", "group_id", "node_id"},
		nil,
	},
	{EventVMStarted, vmAction, "The VM of an instance runs.", []string{"state", "node_id"}, nil},
	{
		EventVMFailedToStart, vmAction, "An instance ended in Error before its VM ran.",
		[]string{"state", "node_id", "message", "failure"},
		nil,
	},
	{EventTerminateVM, vmAction, "The end of an instance was requested.", []string{"instance_state"}, nil},
	{EventVMTerminated, vmAction, "The VM of an instance was removed.", []string{"state", "node_id"}, nil},
	{
		EventDistribute, templateAction, "The distribution of a version was requested.",
		append(slices.Clone(templateKeys), "request_id", "node_count", "node_ids"), nil,
	},
	{
		EventTemplatePulled, templateAction, "A node pulled a version, for an instance or for a distribution.",
		append(slices.Clone(templateKeys), "node_id"),
		[]string{"request_id"},
	},
	{EventDeleteRegistryVM, templateAction, "A template was deleted.", []string{"template_id"}, nil},
	{
		EventConfigNode, nodeAction, "The configuration of a node was changed. The further keys are what was set.",
		[]string{"node_id", "node_name"},
		[]string{
			"new_name", "host", "max_vm_count", "capacity_mode", "vcpu_override", "ram_override",
			"disable_central_logging", "drain_mode", "drain_reason", "drain_deadline",
		},
	},
	{EventDeleteNode, nodeAction, "A node was deleted by a caller.", []string{"node_id", "node_name"}, nil},
	{EventNodeUnregistered, nodeAction, "A node left the cloud.", []string{"node_id", "node_name"}, nil},
	{
		EventNodeDrained, nodeAction, "No VM is left on a node that is drained.",
		[]string{"node_id", "node_name", "reason"},
		nil,
	},
	{
		EventNodeScanned, nodeAction, "The host scanner of a node found other numbers than before.",
		[]string{"node_id", "node_name", "host", "scanner", "counts"},
		nil,
	},
	{
		EventVulnerabilityFound, scanAction,
		"A scan found vulnerabilities in a version, or on a node, that were not found there before. " +
			"`vulnerabilities` are at most 100 of their IDs.",
		[]string{"count", "vulnerabilities"},
		[]string{"template_id", "tag", "content_id", "node_id", "node_name"},
	},
	{
		EventPeerExcluded, nodeAction,
		"A node (`reader_id`) got bytes of a version from another one that do not match their sums, and reads " +
			"nothing from it for 10 minutes. `readers` is how many nodes report it; from 2 on it is named to none " +
			"(`excluded`).",
		[]string{"node_id", "node_name", "reader_id", "reader_name", "content_id", "readers", "excluded"},
		nil,
	},
	{
		EventNodeOffline, nodeAction, "A node became Offline.", nodeStateKeys, nil,
	},
	{
		EventNodeUnhealthy, nodeAction, "A node became Unhealthy.", nodeStateKeys, nil,
	},
	{
		EventNodeRecovered, nodeAction,
		"A node that was Offline or Unhealthy is so no longer. `since` and `reason` are those of the state that ended.",
		nodeStateKeys, nil,
	},
	{
		EventNodesOffline, nodeAction,
		"More than 10 nodes became Offline within 10 seconds: the nodes after the first 10. " +
			"`node_ids` are at most 100 of them.",
		nodeStatesKeys, nil,
	},
	{EventNodesUnhealthy, nodeAction, "As `NodesOffline`, of nodes that became Unhealthy.", nodeStatesKeys, nil},
	{EventNodesRecovered, nodeAction, "As `NodesOffline`, of nodes that recovered.", nodeStatesKeys, nil},
	{EventAlarmStarted, alarmAction, "An alarm began.", alarmKeys, []string{"action", "count"}},
	{EventAlarmEnded, alarmAction, "An alarm ended.", alarmKeys, nil},
	{
		EventsDropped, logAction, "Events were not delivered to a target and were dropped.",
		[]string{"count", "target"},
		nil,
	},
	{
		EventAudit, auditAction, "A caller made a change that no other event reports.",
		[]string{"service", "method", "verb", "route", "outcome"},
		[]string{"about"},
	},
}

// Events lists all events.
func Events() []EventInfo { return slices.Clone(events) }

// eventGroups maps each event to its group.
var eventGroups = func() map[EventName]string {
	groups := map[EventName]string{}
	for _, e := range events {
		groups[e.Name] = e.Group
	}
	return groups
}()

// Actor is the caller of an API request. The zero value is an unknown caller.
type Actor struct {
	User      string `json:"user,omitempty"`     // user of the credential
	KeyID     string `json:"key_id,omitempty"`   // of the API key
	Address   string `json:"address,omitempty"`  // without a port
	RequestID string `json:"request,omitempty"`  // id of the request
	ForUser   string `json:"for_user,omitempty"` // user on whose behalf a program calls
}

// addToEvent adds the actor to the keys of an event.
func (a Actor) addToEvent(fields map[string]any) {
	for key, value := range map[string]string{
		"user": a.User, "key_id": a.KeyID, "address": a.Address, "request": a.RequestID, "for_user": a.ForUser,
	} {
		if value != "" {
			fields[key] = value
		}
	}
}

// Event is something that happened in the cloud, for its log. Its name determines its type.
type Event struct {
	Name       EventName
	InstanceID string // "": it is about no instance
	Time       time.Time
	Extra      map[string]any // further keys, none of those that every event has; values are JSON's
	Actor      Actor          // the caller
}

// NewNodeEvent returns an event about a node, with additional keys.
func NewNodeEvent(name EventName, node *Node, extra map[string]any) Event {
	all := map[string]any{"node_id": node.ID, "node_name": node.Name}
	maps.Copy(all, extra)
	return Event{Name: name, Extra: all}
}

// EncodeRecord returns the event as one line of the log, without the line's end: a JSON object with
// sorted keys. machine is the host of the controller that saw it.
func (e Event) EncodeRecord(machine string) ([]byte, error) {
	kind, known := EventKinds[e.Name]
	if !known {
		kind = SystemAction
	}
	fields := make(map[string]any, len(e.Extra)+10)
	maps.Copy(fields, e.Extra)
	e.Actor.addToEvent(fields)
	fields["instance_id"], fields["machineName"] = e.InstanceID, machine
	fields["name"], fields["type"], fields["sub_type"] = e.Name, kind, eventGroups[e.Name]
	fields["time"] = e.Time.Unix()
	return json.Marshal(fields) // sorts the keys
}
