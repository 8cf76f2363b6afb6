package controller

import (
	"cmp"
	"context"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// NodeScope returns what a token that a node requests permits at the registry: the purpose that it
// names, when the records have an order of that node for it, else farm.CodeForbidden. Without a
// purpose, as agents of the previous release request it, it permits all orders of the node.
func (c *Controller) NodeScope(
	ctx context.Context, node *farm.Node, purpose *api.TokenPurpose,
) (auth.NodeScope, error) {
	if purpose == nil {
		return c.allOrders(node), nil
	}
	scope, err := c.scopeFor(node, *purpose)
	if farm.CodeOf(err) != farm.CodeForbidden {
		return scope, err
	}
	if late := c.db.UpToDate(ctx); late != nil { // another replica may have created the order
		return auth.NodeScope{}, farm.Unavailable(late, "The store cannot be reached; try again")
	}
	return c.scopeFor(node, *purpose)
}

// scopeFor evaluates one purpose by the tables as they are.
func (c *Controller) scopeFor(node *farm.Node, p api.TokenPurpose) (scope auth.NodeScope, err error) {
	switch p {
	case api.TokenPurpose{}:
		return scope, farm.Invalid("purpose", "must be one of pull, save, logs and rows")
	case api.TokenPurpose{Pull: p.Pull}:
		if !c.wasToldToHold(node.ID, p.Pull) {
			return scope, unordered("pull the template", p.Pull)
		}
		scope.Pull = []string{p.Pull}
	case api.TokenPurpose{Save: p.Save}:
		save, ok := c.saveUnderWay(node.ID, p.Save)
		if !ok {
			return scope, unordered("push the save", p.Save)
		}
		scope.Save = []auth.SaveScope{save}
	case api.TokenPurpose{Logs: p.Logs}:
		if !c.wasOn(node.ID, p.Logs) {
			return scope, unordered("upload logs of the instance", p.Logs)
		}
		scope.Logs = []string{p.Logs}
	case api.TokenPurpose{Rows: true}:
		scope.Rows = rowScope(node)
	default:
		return scope, farm.Invalid("purpose", "must be one of pull, save, logs and rows")
	}
	return scope, nil
}

// unordered returns the refusal of a token that no order of the node needs.
func unordered(what, id string) error {
	return farm.Errorf(farm.CodeForbidden, "This node has no order to %s %.100q", what, id)
}

func rowScope(node *farm.Node) *auth.RowScope {
	return &auth.RowScope{Machine: node.Name, Host: node.Host}
}

// holdsTemplate reports whether the node of an instance needs its template.
func holdsTemplate(i *farm.Instance) bool {
	return i.OnNode() && i.State != farm.Terminating && i.State != farm.Errored
}

// wasToldToHold reports whether an instance of a template is on a node, or the node has an order to
// cache the template.
func (c *Controller) wasToldToHold(node, template string) bool {
	for _, inst := range c.tables.Instances.Where(record.ByNode, node) {
		if inst.Template.ID == template && holdsTemplate(inst) {
			return true
		}
	}
	for id := range c.distributionsTo(node) {
		if e, _, ok := c.tables.CacheJobs.Get(id); ok && e.Template.ID == template {
			return true
		}
	}
	return false
}

// distributionsTo yields the ids of the open distributions that a node has not done yet.
func (c *Controller) distributionsTo(node string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for id, e := range c.tables.CacheJobs.All() {
			if e.Kind != farm.CacheJobDistribute || !e.Open() || !e.Addresses(node) {
				continue
			}
			if _, _, done := c.tables.CacheJobResults.Get(record.CacheJobResultID(id, node)); !done && !yield(id) {
				return
			}
		}
	}
}

// saveUnderWay returns the push of a save that the node has an order for now.
func (c *Controller) saveUnderWay(node, id string) (auth.SaveScope, bool) {
	s, _, ok := c.tables.Saves.Get(id)
	if !ok || s.Status != farm.SavePending {
		return auth.SaveScope{}, false
	}
	inst, _, ok := c.tables.Instances.Get(s.Request.InstanceID)
	if !ok || inst.NodeID != node || inst.Task == nil || inst.Task.ID != id {
		return auth.SaveScope{}, false
	}
	o := s.Request
	save := auth.SaveScope{ID: id, Template: o.TemplateID, Name: o.NewTemplateName, Tag: o.Tag, Base: inst.Template.ID}
	if o.RevertBeforePush {
		save.Revert = &o.RevertTag
	}
	return save, true
}

// wasOn reports whether an instance is, or was before it ended, on a node.
func (c *Controller) wasOn(node, instance string) bool {
	if inst, _, ok := c.tables.Instances.Get(instance); ok {
		return inst.NodeID == node
	}
	for _, p := range c.tables.History.Snapshot().Where(record.ByInstance, instance) {
		if p.NodeID == node {
			return true
		}
	}
	return false
}

// allOrders returns the scope of all orders of a node, the most urgent first: for a node with very
// many orders the token leaves out the rest.
func (c *Controller) allOrders(node *farm.Node) auth.NodeScope {
	scope := auth.NodeScope{Orders: true, Rows: rowScope(node)}
	pull := func(template string) {
		if !slices.Contains(scope.Pull, template) {
			scope.Pull = append(scope.Pull, template)
		}
	}
	var all []*farm.Instance
	for _, inst := range c.tables.Instances.Where(record.ByNode, node.ID) {
		all = append(all, inst)
	}
	slices.SortFunc(all, func(a, b *farm.Instance) int { // the one that changed last first
		return cmp.Or(urgency(a)-urgency(b), b.Updated.Compare(a.Updated), cmp.Compare(a.ID, b.ID))
	})
	for _, inst := range all {
		if inst.Task != nil && inst.Task.Kind == farm.TaskSave {
			if save, ok := c.saveUnderWay(node.ID, inst.Task.ID); ok {
				scope.Save = append(scope.Save, save)
			}
		}
		if holdsTemplate(inst) {
			pull(inst.Template.ID)
		}
		scope.Logs = append(scope.Logs, inst.ID)
	}
	for id := range c.distributionsTo(node.ID) {
		if e, _, ok := c.tables.CacheJobs.Get(id); ok {
			pull(e.Template.ID)
		}
	}
	return scope
}

// urgency orders instances by how soon their node needs the registry for them.
func urgency(i *farm.Instance) int {
	switch i.State {
	case farm.Scheduling, farm.Pulling, farm.Pushing:
		return 0
	case farm.Errored:
		return 1
	default:
		return 2
	}
}
