package controllerrest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/filter"
	"github.com/buildyard/buildyard/internal/rest"
)

// filterParam reads the parameter filter for a list; nil when it is not given.
func filterParam[T any](p *rest.Params, table filter.Table[T]) func(T) bool {
	text := p.String("filter")
	if text == "" {
		return nil
	}
	f, err := table.Parse(text)
	if err != nil {
		p.RecordError("filter", "%v", err)
		return nil
	}
	if f.MatchesAll() {
		return nil
	}
	now := time.Now()
	return func(v T) bool { return f.Match(v, now) }
}

// filterList returns the matching elements of a list; all of them without a filter.
func filterList[T any](list []T, fits func(T) bool) []T {
	if fits == nil {
		return list
	}
	some := []T{}
	for _, v := range list {
		if fits(v) {
			some = append(some, v)
		}
	}
	return some
}

// vmFields are the fields of instances.
func vmFields(c *controller.Controller) filter.Table[instances.View] {
	type vm = instances.View
	return filter.Table[vm]{
		{Name: "id", IsDefault: true, Text: func(v vm) string { return v.ID }},
		{Name: "name", IsDefault: true, Text: func(v vm) string { return v.Name }},
		{Name: "external_id", IsDefault: true, Text: func(v vm) string { return v.ExternalID }},
		{Name: "metadata", IsDefault: true, Texts: metadataTexts, Summary: "a value of the metadata, or key=value"},
		{
			Name: "state", IsDefault: true, Values: stateTexts(farm.InstanceStates),
			Text: func(v vm) string { return string(v.State) },
		},
		{Name: "phase", Values: stateTexts(farm.Phases), Text: func(v vm) string { return string(v.Phase()) }},
		{
			Name: "failure", Values: stateTexts(farm.FailureClasses()),
			Text: func(v vm) string { return failureText(v.ShownFailure()) },
		},
		{Name: "message", IsDefault: true, Text: func(v vm) string { return v.Message }, Suggest: noSuggestions[vm]},
		{
			Name: "template", IsDefault: true,
			Texts:   func(v vm) []string { return []string{v.Template.Name, v.Template.ID} },
			Suggest: func(v vm) []string { return []string{v.Template.Name} },
		},
		{
			Name: "tag", IsDefault: true, Text: func(v vm) string { return v.Template.Tag },
			Suggest: func(v vm) []string { return []string{v.Template.Tag} },
		},
		{Name: "version", Number: func(v vm) float64 { return float64(v.Template.Version) }},
		{Name: "arch", IsDefault: true, Values: arches, Text: func(v vm) string { return v.Template.Arch }},
		{
			Name: nodeField, IsDefault: true, Texts: func(v vm) []string { return []string{v.NodeName, v.NodeID} },
			Suggest: func(v vm) []string { return []string{v.NodeName} },
		},
		{
			Name: "group", IsDefault: true,
			Texts:   func(v vm) []string { return []string{v.GroupID, c.Groups.Name(v.GroupID)} },
			Suggest: func(v vm) []string { return []string{c.Groups.Name(v.GroupID)} },
		},
		{
			Name: "owner", IsDefault: true, Text: func(v vm) string { return v.Owner },
			Suggest: func(v vm) []string { return []string{v.Owner} },
		},
		{Name: "ip", IsDefault: true, Texts: addresses},
		{Name: "mac", IsDefault: true, Text: macOf},
		{Name: "vlan", Text: func(v vm) string { return v.Options.VLAN }},
		{Name: "usb", Text: func(v vm) string { return v.Options.USBDevice }},
		{Name: "age", Age: func(v vm) time.Time { return v.Created }},
		{Name: "idle", Age: func(v vm) time.Time { return v.Updated }},
		{Name: "ttl", Duration: func(v vm) (float64, bool) { return float64(v.TTL), v.TTL > 0 }},
		{Name: "cpus", Number: func(v vm) float64 { return float64(v.GuestCPUs()) }},
		{Name: "ram", Size: func(v vm) float64 { return mebibytesToBytes(v.GuestMemoryMB()) }},
		{Name: "progress", Number: func(v vm) float64 { return v.PullProgress }},
	}
}

// failureText returns the class of a failure; "" for none.
func failureText(f *farm.Failure) string {
	if f == nil {
		return ""
	}
	return string(f.Class.Info().Class)
}

// arches are the architectures of guests and hosts.
var arches = []string{"amd64", "arm64"}

// visibleNodeStates are the states in which clients see nodes.
var visibleNodeStates = append([]farm.NodeState{farm.NodeDrain}, farm.NodeStates...)

// stateTexts returns states as texts.
func stateTexts[S ~string](states []S) []string {
	list := make([]string, len(states))
	for i, s := range states {
		list[i] = string(s)
	}
	return list
}

// noSuggestions is of fields whose values are no use in a completion.
func noSuggestions[T any](T) []string { return nil }

// metadataTexts returns the values of an instance's metadata, each alone and after its key.
func metadataTexts(v instances.View) []string {
	if len(v.Metadata) == 0 {
		return nil
	}
	list := make([]string, 0, 2*len(v.Metadata))
	for key, value := range v.Metadata {
		text := scalarText(value)
		list = append(list, text, key+"="+text)
	}
	return list
}

// scalarText returns a value of metadata as a text: a string, an integer or a boolean, which may come from JSON.
func scalarText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

func addresses(v instances.View) []string {
	if v.VM == nil {
		return nil
	}
	return []string{v.VM.IP, v.VM.HostIP}
}

func macOf(v instances.View) string { return macOfInstance(v.Instance) }

// macOfInstance returns the MAC address that an instance has, or will have.
func macOfInstance(inst *farm.Instance) string {
	reported := ""
	if inst.VM != nil {
		reported = inst.VM.MAC
	}
	return cmp.Or(inst.Options.MACAddress, reported, inst.MAC)
}

func mebibytesToBytes(n int) float64 { return float64(n) * (1 << 20) }

// pastFields are the filter fields of terminated instances.
var pastFields = filter.Table[*farm.InstanceHistory]{
	{Name: "id", IsDefault: true, Text: func(p *farm.InstanceHistory) string { return p.ID }},
	{Name: "name", IsDefault: true, Text: func(p *farm.InstanceHistory) string { return p.Name }},
	{Name: "external_id", IsDefault: true, Text: func(p *farm.InstanceHistory) string { return p.ExternalID }},
	{
		Name: "failure", Values: stateTexts(farm.FailureClasses()),
		Text: func(p *farm.InstanceHistory) string { return failureText(p.Failure) },
	},
	{Name: "message", IsDefault: true, Text: func(p *farm.InstanceHistory) string { return p.Message }},
	{Name: "state", Values: stateTexts(farm.InstanceStates), Texts: func(p *farm.InstanceHistory) []string {
		states := make([]string, len(p.Transitions)) // past states
		for i, t := range p.Transitions {
			states[i] = string(t.State)
		}
		return states
	}},
	{
		Name: "template", IsDefault: true,
		Texts: func(p *farm.InstanceHistory) []string { return []string{p.TemplateName, p.TemplateID} },
	},
	{Name: "tag", IsDefault: true, Text: func(p *farm.InstanceHistory) string { return p.Tag }},
	{Name: "version", Number: func(p *farm.InstanceHistory) float64 { return float64(p.Version) }},
	{Name: "arch", Values: arches, Text: func(p *farm.InstanceHistory) string { return p.Arch }},
	{
		Name: nodeField, IsDefault: true,
		Texts: func(p *farm.InstanceHistory) []string { return []string{p.NodeName, p.NodeID} },
	},
	{Name: "group", Text: func(p *farm.InstanceHistory) string { return p.GroupID }},
	{Name: "owner", IsDefault: true, Text: func(p *farm.InstanceHistory) string { return p.Owner }},
	{Name: "age", Age: func(p *farm.InstanceHistory) time.Time { return p.Created }},
	{Name: "ended", Age: func(p *farm.InstanceHistory) time.Time { return p.Finished }},
}

// nodeFields are the fields of nodes, with what is only known outside their records.
func (s *server) nodeFields() filter.Table[api.Node] {
	failed := sync.OnceValue(s.controller.Usage.FailedInstances)
	return append(slices.Clone(nodeRecordFields), filter.Field[api.Node]{
		Name: "failed", Summary: "instances that failed there in the last hour",
		Number: func(n api.Node) float64 { return float64(failed()[n.NodeID]) },
	})
}

// nodeRecordFields are the fields of nodes as the API has them.
var nodeRecordFields = filter.Table[api.Node]{
	{Name: "id", IsDefault: true, Text: func(n api.Node) string { return n.NodeID }},
	{Name: "name", IsDefault: true, Text: func(n api.Node) string { return n.NodeName }},
	{Name: "host", IsDefault: true, Text: func(n api.Node) string { return n.IPAddress }},
	{
		Name: "state", IsDefault: true, Values: stateTexts(visibleNodeStates),
		Text: func(n api.Node) string { return n.State },
	},
	{
		Name: "reason", IsDefault: true, Text: func(n api.Node) string { return n.StateReason },
		Summary: "why it is in its state", Suggest: noSuggestions[api.Node],
	},
	{Name: "arch", IsDefault: true, Values: arches, Text: func(n api.Node) string { return n.HostArch }},
	{Name: "version", IsDefault: true, Text: func(n api.Node) string { return n.AgentVersion }},
	{
		Name: "hypervisor", IsDefault: true,
		Texts:   func(n api.Node) []string { return []string{n.AnkaVersion.Product, n.AnkaVersion.Version} },
		Suggest: func(n api.Node) []string { return []string{n.AnkaVersion.Product} },
	},
	{
		Name: "group", IsDefault: true,
		Texts: func(n api.Node) (names []string) {
			for _, g := range n.Groups {
				names = append(names, g.Name, g.ID)
			}
			return names
		},
		Suggest: func(n api.Node) (names []string) {
			for _, g := range n.Groups {
				names = append(names, g.Name)
			}
			return names
		},
	},
	{
		Name: "template",
		Texts: func(n api.Node) (names []string) {
			for _, t := range n.Templates {
				names = append(names, t.Name, t.UUID, t.Name+":"+t.Tag, t.UUID+":"+t.Tag)
			}
			return names
		},
		Suggest: func(n api.Node) (names []string) {
			for _, t := range n.Templates {
				names = append(names, t.Name)
			}
			return names
		},
		Summary: "a cached template, or NAME:TAG for one of its tags",
	},
	{Name: "capacity", Number: func(n api.Node) float64 { return float64(n.Capacity) }},
	{Name: "vms", Number: func(n api.Node) float64 { return float64(n.VMCount) }},
	{Name: "cpus", Number: func(n api.Node) float64 { return float64(n.CPUCount) }},
	{Name: "ram", Size: func(n api.Node) float64 { return float64(n.RAM) * (1 << 30) }},
	{Name: "disk", Size: func(n api.Node) float64 { return float64(n.DiskSize) }},
	{Name: "free", Size: func(n api.Node) float64 { return float64(n.FreeDisk) }},
	{Name: "unknown", Number: func(n api.Node) float64 { return float64(n.UnknownVMs) }},
	{Name: "seen", Age: func(n api.Node) time.Time { return n.LastUpdated }},
}

// templateFields are the fields of templates.
var templateFields = filter.Table[api.Template]{
	{Name: "id", IsDefault: true, Text: func(t api.Template) string { return t.ID }},
	{Name: "name", IsDefault: true, Text: func(t api.Template) string { return t.Name }},
	{Name: "arch", IsDefault: true, Values: arches, Text: func(t api.Template) string { return t.Arch }},
	{Name: "tag", IsDefault: true, Text: func(t api.Template) string { return t.LatestTag }, Summary: "the newest tag"},
	{Name: "size", Size: func(t api.Template) float64 { return float64(t.Size) }},
}

// imageFields are the fields of save requests.
var imageFields = filter.Table[*farm.SaveRequest]{
	{Name: "id", IsDefault: true, Text: func(s *farm.SaveRequest) string { return s.ID }},
	{Name: "name", IsDefault: true, Text: func(s *farm.SaveRequest) string { return s.Request.NewTemplateName }},
	{
		Name: "state", Values: stateTexts(farm.SaveStatuses),
		Text: func(s *farm.SaveRequest) string { return string(s.Status) },
	},
	{Name: "template", Text: func(s *farm.SaveRequest) string { return s.Request.TemplateID }},
	{Name: "tag", Text: func(s *farm.SaveRequest) string { return s.Request.Tag }},
	{Name: "instance", Text: func(s *farm.SaveRequest) string { return s.Request.InstanceID }},
	{Name: "node", Text: func(s *farm.SaveRequest) string { return s.NodeID }},
	{Name: "message", Text: func(s *farm.SaveRequest) string { return s.ErrorMessage }},
	{Name: "age", Age: func(s *farm.SaveRequest) time.Time { return s.Created }},
}

// cacheJobOpen is the state of a cache job that has not ended.
const cacheJobOpen = "open"

// cacheJobFields are the fields of distributions, and of removals from nodes.
var cacheJobFields = filter.Table[*farm.CacheJob]{
	{Name: "id", IsDefault: true, Text: func(e *farm.CacheJob) string { return e.ID }},
	{Name: "name", IsDefault: true, Text: func(e *farm.CacheJob) string { return e.Template.Name }},
	{Name: "template", Texts: func(e *farm.CacheJob) []string { return []string{e.Template.Name, e.Template.ID} }},
	{Name: "tag", Text: func(e *farm.CacheJob) string { return e.Template.Tag }},
	{
		Name: "state",
		Values: []string{
			cacheJobOpen, string(farm.CacheJobFinished), string(farm.CacheJobCanceled), string(farm.CacheJobExpired),
		},
		Text: func(e *farm.CacheJob) string {
			if e.IsOpen() {
				return cacheJobOpen
			}
			return string(e.EndReason)
		},
	},
	{Name: "node", Texts: func(e *farm.CacheJob) []string { return e.Nodes }},
	{Name: "nodes", Number: func(e *farm.CacheJob) float64 { return float64(len(e.Nodes)) }},
	{Name: "age", Age: func(e *farm.CacheJob) time.Time { return e.RequestedAt }},
}

// eventFields are the fields of events, which are JSON objects.
var eventFields = filter.Table[events.LoggedEvent]{
	{Name: "id", Text: func(e events.LoggedEvent) string { return e.ID }},
	{Name: "name", IsDefault: true, Text: eventField("name")},
	{Name: "type", Text: eventField("type")},
	{Name: "sub_type", Text: eventField("sub_type")},
	{Name: "instance", IsDefault: true, Text: eventField("instance_id")},
	{Name: "node", IsDefault: true, Texts: eventFieldValues("node_id", "node_name")},
	{Name: "template", IsDefault: true, Texts: eventFieldValues("template_id", "template_name")},
	{Name: "tag", Text: eventField("tag")},
	{Name: "group", Text: eventField("group_id")},
	{Name: "state", Texts: eventFieldValues("state", "instance_state")},
	{Name: "machine", Text: eventField("machineName")},
	{Name: "message", IsDefault: true, Text: eventField("message")},
	{Name: "user", IsDefault: true, Texts: eventFieldValues("user", "key_id", "for_user")},
	{Name: "address", IsDefault: true, Text: eventField("address")},
	{Name: "about", Text: eventField("about")},
	{Name: "age", Age: func(e events.LoggedEvent) time.Time {
		seconds, _ := e.Field("time").(float64)
		return time.Unix(int64(seconds), 0)
	}},
}

func eventField(key string) func(events.LoggedEvent) string {
	return func(e events.LoggedEvent) string {
		switch v := e.Field(key).(type) {
		case string:
			return v
		case float64:
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
		return ""
	}
}

func eventFieldValues(keys ...string) func(events.LoggedEvent) []string {
	return func(e events.LoggedEvent) (list []string) {
		for _, key := range keys {
			if text := eventField(key)(e); text != "" {
				list = append(list, text)
			}
		}
		return list
	}
}
