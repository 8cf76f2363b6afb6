package controllerrest

import (
	"slices"
	"sync"

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
	rightUnload     = "delete_template"
	rightDistribute = "distribute"
	rightUpdate     = "force_upgrade"
	rightRemove     = "remove"
)

// onNode refuses a caller without a right on a node.
func onNode(r *rest.Request, id string, right farm.Permission) error {
	return rest.CallerOf(r.Context()).May(farm.ResourceNode, id, right)
}

// onNodes returns a function that reports why the caller, or the permission group it acts for, may not do
// something on a node. It is nil if all callers may on all nodes.
func onNodes(r *rest.Request, group string, right farm.Permission) func(id string) error {
	caller := rest.CallerOf(r.Context())
	if !caller.Managed() {
		return nil
	}
	return func(id string) error { return caller.GroupMay(group, farm.ResourceNode, id, right) }
}

// visibility describes which nodes and templates a caller sees where rights on them apply.
type visibility struct {
	narrow   bool // the caller may not see everything
	node     func(id string) bool
	template func(id string) bool // calls the registry, once
}

func everything(string) bool { return true }

func (s *server) visibilityOf(r *rest.Request) visibility {
	caller := rest.CallerOf(r.Context())
	if !caller.Managed() || caller.Unlimited() {
		return visibility{node: everything, template: everything}
	}
	ask := sync.OnceValue(func() func(string) bool { return s.c.Templates.Visible(r.Context()) })
	return visibility{
		narrow:   true,
		node:     func(id string) bool { return caller.Sees(farm.ResourceNode, id) },
		template: func(id string) bool { return ask()(id) },
	}
}

// named returns the names by which a filter finds a node: only its ID if the caller does not see it.
func (v visibility) named(id, name string) []string {
	if v.node(id) {
		return []string{name, id}
	}
	return []string{id}
}

// event reports whether the caller may see an event. Callers that see instances see all events of instances,
// including the node.
func (v visibility) event(e events.LoggedEvent) bool {
	return member("instance_id")(e) != "" || v.both(member("node_id")(e), member("template_id")(e))
}

// both reports whether the caller sees a node and a template, as far as they are given.
func (v visibility) both(node, template string) bool {
	return (node == "" || v.node(node)) && (template == "" || v.template(template))
}

// cacheJob returns a cache job without the nodes that the caller does not see.
func (v visibility) cacheJob(e cachejobs.View) cachejobs.View {
	if !v.narrow {
		return e
	}
	on := make(map[string]farm.CacheJobResult, len(e.On))
	for id, o := range e.On {
		if v.node(id) {
			on[id] = o
		}
	}
	e.On = on
	return e
}

// vmFields are the filter fields of instances for this caller.
func (v visibility) vmFields(all filter.Table[instances.View]) filter.Table[instances.View] {
	if !v.narrow {
		return all
	}
	return with(all, filter.Field[instances.View]{
		Name: nodeField, Texts: func(l instances.View) []string { return v.named(l.NodeID, l.NodeName) },
	})
}

// pastFields are the filter fields of terminated instances for this caller.
func (v visibility) pastFields() filter.Table[*farm.InstanceHistory] {
	if !v.narrow {
		return pastFields
	}
	return with(pastFields, filter.Field[*farm.InstanceHistory]{
		Name: nodeField, Texts: func(p *farm.InstanceHistory) []string { return v.named(p.NodeID, p.NodeName) },
	})
}

// cacheJobFields are the filter fields of cache jobs for this caller.
func (v visibility) cacheJobFields() filter.Table[*farm.CacheJob] {
	if !v.narrow {
		return cacheJobFields
	}
	seen := func(e *farm.CacheJob) []string {
		return slices.DeleteFunc(slices.Clone(e.Nodes), func(id string) bool { return !v.node(id) })
	}
	t := with(cacheJobFields, filter.Field[*farm.CacheJob]{Name: nodeField, Texts: seen})
	return with(t, filter.Field[*farm.CacheJob]{
		Name: "nodes", Number: func(e *farm.CacheJob) float64 { return float64(len(seen(e))) },
	})
}

// nodeField is the name of the field that contains the nodes of an object.
const nodeField = "node"

// with returns a table in which f replaces the field of the same name.
func with[T any](t filter.Table[T], f filter.Field[T]) filter.Table[T] {
	t = slices.Clone(t)
	i := slices.IndexFunc(t, func(other filter.Field[T]) bool { return other.Name == f.Name })
	t[i] = f
	return t
}
