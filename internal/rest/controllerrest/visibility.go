package controllerrest

import (
	"slices"
	"sync"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/cachejobs"
	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/filter"
	"github.com/buildyard/buildyard/internal/rest"
)

// The rights on nodes.
const (
	rightConfig     = "change_config"
	rightStart      = "create_instance"
	rightEvict      = "delete_template"
	rightDistribute = "distribute"
	rightUpdate     = "force_upgrade"
	rightRemove     = "remove"
)

// requireNodeRight refuses a caller without a right on a node.
func requireNodeRight(r *rest.Request, id string, right farm.Permission) error {
	return rest.CallerOf(r.Context()).RequireVisibleRight(farm.ResourceNode, id, right)
}

// nodeRightChecker returns a function that reports why the caller, or the permission group it acts for, may not do
// something on a node. It is nil if all callers may on all nodes.
func nodeRightChecker(r *rest.Request, group string, right farm.Permission) func(id string) error {
	caller := rest.CallerOf(r.Context())
	if !caller.ResourcesManaged() {
		return nil
	}
	return func(id string) error { return caller.RequireGroupRight(group, farm.ResourceNode, id, right) }
}

// visibility describes which nodes and templates a caller sees where rights on them apply.
type visibility struct {
	isRestricted bool // the caller may not see everything
	listsNodes   bool // the caller has the permission to list nodes
	listsGroups  bool // and that to list groups
	seesNode     func(id string) bool
	seesTemplate func(id string) bool // calls the registry, once
}

func always(string) bool { return true }

func (s *server) visibilityOf(r *rest.Request) visibility {
	caller := rest.CallerOf(r.Context())
	v := visibility{
		listsNodes:  caller.RequirePermission("list_nodes") == nil,
		listsGroups: caller.RequirePermission("get_groups") == nil,
		seesNode:    always, seesTemplate: always,
	}
	if !caller.ResourcesManaged() || caller.Unlimited() {
		return v
	}
	ask := sync.OnceValue(func() func(string) bool { return s.controller.Templates.Visible(r.Context()) })
	v.isRestricted = true
	v.seesNode = func(id string) bool { return caller.CanSee(farm.ResourceNode, id) }
	v.seesTemplate = func(id string) bool { return ask()(id) }
	return v
}

// filterNames returns the names by which a filter finds a node: only its ID if the caller does not see it.
func (v visibility) filterNames(id, name string) []string {
	if v.seesNode(id) {
		return []string{name, id}
	}
	return []string{id}
}

// seesEvent reports whether the caller may see an event. Callers that see instances see all events of instances,
// including the node.
func (v visibility) seesEvent(e events.LoggedEvent) bool {
	if ids, ok := e.Field("node_ids").([]any); ok && eventField("template_id")(e) == "" && !v.seesNodes(ids) {
		return false
	}
	if !v.seesAlarm(eventField("alarm")(e), eventField("subject")(e)) {
		return false
	}
	return eventField("instance_id")(e) != "" || v.seesBoth(eventField("node_id")(e), eventField("template_id")(e))
}

// nodeAlarms are the alarms whose subject is the ID of a node that their texts name.
var nodeAlarms = []string{api.AlarmNodeDisk, api.AlarmNodeClock, api.AlarmOrphans}

// seesAlarm reports whether the caller may see an alarm. That of an outage describes nodes by their groups and
// addresses; callers that do not see all nodes have the outages of their own ones.
func (v visibility) seesAlarm(name, subject string) bool {
	switch {
	case name == api.AlarmOutage:
		return !v.isRestricted && v.listsNodes
	case subject == "":
		return true
	case name == api.AlarmQueueGrows: // about a group
		return v.listsGroups
	case slices.Contains(nodeAlarms, name):
		return v.listsNodes && v.seesNode(subject)
	}
	return true
}

// visibleAlarms returns the alarms that the caller may see.
func (v visibility) visibleAlarms(list []api.Alarm) []api.Alarm {
	return slices.DeleteFunc(list, func(a api.Alarm) bool { return !v.seesAlarm(a.Name, a.Subject) })
}

// seesNodes reports whether the caller sees all nodes of a summary of many.
func (v visibility) seesNodes(ids []any) bool {
	return !slices.ContainsFunc(ids, func(id any) bool {
		text, ok := id.(string)
		return !ok || !v.seesNode(text)
	})
}

// seesBoth reports whether the caller sees a node and a template, as far as they are given.
func (v visibility) seesBoth(node, template string) bool {
	return (node == "" || v.seesNode(node)) && (template == "" || v.seesTemplate(template))
}

// visiblePart returns a cache job without the nodes that the caller does not see.
func (v visibility) visiblePart(e cachejobs.View) cachejobs.View {
	if !v.isRestricted {
		return e
	}
	on := make(map[string]farm.CacheJobResult, len(e.On))
	for id, o := range e.On {
		if v.seesNode(id) {
			on[id] = o
		}
	}
	e.On = on
	return e
}

// vmFields are the filter fields of instances for this caller.
func (v visibility) vmFields(all filter.Table[instances.View]) filter.Table[instances.View] {
	if !v.isRestricted {
		return all
	}
	template := all[slices.IndexFunc(all, func(f filter.Field[instances.View]) bool { return f.Name == "template" })]
	suggest := template.Suggest
	template.Texts = func(l instances.View) []string { return v.templateTexts(l.Template.ID, l.Template.Name) }
	template.Suggest = func(l instances.View) []string {
		if !v.seesTemplate(l.Template.ID) {
			return nil
		}
		return suggest(l)
	}
	return withField(withField(all, template), filter.Field[instances.View]{
		Name: nodeField, IsDefault: true,
		Texts:   func(l instances.View) []string { return v.filterNames(l.NodeID, l.NodeName) },
		Suggest: func(l instances.View) []string { return v.filterNames(l.NodeID, l.NodeName)[:1] },
	})
}

// pastFields are the filter fields of terminated instances for this caller.
func (v visibility) pastFields() filter.Table[*farm.InstanceHistory] {
	if !v.isRestricted {
		return pastFields
	}
	fields := withField(pastFields, filter.Field[*farm.InstanceHistory]{
		Name: nodeField, IsDefault: true,
		Texts: func(p *farm.InstanceHistory) []string { return v.filterNames(p.NodeID, p.NodeName) },
	})
	return withField(fields, filter.Field[*farm.InstanceHistory]{
		Name: "template", IsDefault: true,
		Texts: func(p *farm.InstanceHistory) []string { return v.templateTexts(p.TemplateID, p.TemplateName) },
	})
}

// templateTexts returns what a template is filtered and sorted by: its name only if the caller sees it.
func (v visibility) templateTexts(id, name string) []string {
	if v.seesTemplate(id) {
		return []string{name, id}
	}
	return []string{id}
}

// cacheJobFields are the filter fields of cache jobs for this caller.
func (v visibility) cacheJobFields() filter.Table[*farm.CacheJob] {
	if !v.isRestricted {
		return cacheJobFields
	}
	seen := func(e *farm.CacheJob) []string {
		return slices.DeleteFunc(slices.Clone(e.Nodes), func(id string) bool { return !v.seesNode(id) })
	}
	t := withField(cacheJobFields, filter.Field[*farm.CacheJob]{Name: nodeField, Texts: seen})
	t = withField(t, filter.Field[*farm.CacheJob]{
		Name:  "template",
		Texts: func(e *farm.CacheJob) []string { return v.templateTexts(e.Template.ID, e.Template.Name) },
	})
	t = withField(t, filter.Field[*farm.CacheJob]{Name: "name", IsDefault: true, Text: func(e *farm.CacheJob) string {
		return v.templateTexts(e.Template.ID, e.Template.Name)[0]
	}})
	return withField(t, filter.Field[*farm.CacheJob]{
		Name: "nodes", Number: func(e *farm.CacheJob) float64 { return float64(len(seen(e))) },
	})
}

// nodeField is the name of the field that contains the nodes of an object.
const nodeField = "node"

// withField returns a table in which f replaces the field of the same name.
func withField[T any](t filter.Table[T], f filter.Field[T]) filter.Table[T] {
	t = slices.Clone(t)
	i := slices.IndexFunc(t, func(other filter.Field[T]) bool { return other.Name == f.Name })
	t[i] = f
	return t
}
