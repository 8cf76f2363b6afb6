package tokenscope

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// Scopes decides what tokens of nodes permit.
type Scopes struct{ db record.DB }

// New returns the scopes by the records of a database.
func New(db record.DB) *Scopes { return &Scopes{db: db} }

// Of returns what a token that a node requests permits: the purpose that it names, when the records
// have an order of that node for it, else farm.CodeForbidden. Without a purpose, as agents of the
// previous release request it, it permits all orders of the node.
func (s *Scopes) Of(ctx context.Context, node *farm.Node, purpose *api.TokenPurpose) (auth.NodeScope, error) {
	if purpose == nil {
		return s.allOrders(node), nil
	}
	scope, err := s.forPurpose(node, *purpose)
	if farm.CodeOf(err) != farm.CodeForbidden {
		return scope, err
	}
	if late := s.db.UpToDate(ctx); late != nil { // another replica may have created the order
		return auth.NodeScope{}, farm.Unavailable(late, "The store cannot be reached; try again")
	}
	return s.forPurpose(node, *purpose)
}

// forPurpose evaluates one purpose by the tables as they are.
func (s *Scopes) forPurpose(node *farm.Node, p api.TokenPurpose) (scope auth.NodeScope, err error) {
	switch p {
	case api.TokenPurpose{}:
		return scope, farm.Invalid("purpose", "must be one of pull, save, logs and rows")
	case api.TokenPurpose{Pull: p.Pull}:
		if !s.hasPullOrder(node.ID, p.Pull) {
			return scope, noOrder("pull the template", p.Pull)
		}
		scope.PullTemplates = []string{p.Pull}
	case api.TokenPurpose{Save: p.Save}:
		save, ok := s.openSave(node.ID, p.Save)
		if !ok {
			return scope, noOrder("push the save", p.Save)
		}
		scope.Saves = []auth.SaveScope{save}
	case api.TokenPurpose{Logs: p.Logs}:
		if !s.ranInstance(node.ID, p.Logs) {
			return scope, noOrder("upload logs of the instance", p.Logs)
		}
		scope.LogInstances = []string{p.Logs}
	case api.TokenPurpose{Rows: true}:
		scope.LogRows = rowScope(node)
	default:
		return scope, farm.Invalid("purpose", "must be one of pull, save, logs and rows")
	}
	return scope, nil
}

// noOrder returns the refusal of a token that no order of the node needs.
func noOrder(what, id string) error {
	return farm.Errorf(farm.CodeForbidden, "This node has no order to %s %.100q", what, id)
}

func rowScope(node *farm.Node) *auth.LogRowScope {
	return &auth.LogRowScope{Machine: node.Name, Host: node.Host}
}

// needsTemplate reports whether the node of an instance needs its template.
func needsTemplate(i *farm.Instance) bool {
	return i.OnNode() && i.State != farm.Terminating && i.State != farm.Errored
}

// hasPullOrder reports whether an instance of a template is on a node, or the node has an order to
// cache the template.
func (s *Scopes) hasPullOrder(node, template string) bool {
	for _, inst := range s.db.Tables.Instances.Where(record.ByNode, node) {
		if inst.Template.ID == template && needsTemplate(inst) {
			return true
		}
	}
	for job := range s.openDistributions(node) {
		if job.Template.ID == template {
			return true
		}
	}
	return false
}

// MayPull returns an error of farm.CodeForbidden if a node has no order to cache a version.
func (s *Scopes) MayPull(ctx context.Context, node *farm.Node, contentID string) error {
	if s.hasVersionOrder(node.ID, contentID) {
		return nil
	}
	if late := s.db.UpToDate(ctx); late != nil { // another replica may have created the order
		return farm.Unavailable(late, "The store cannot be reached; try again")
	}
	if s.hasVersionOrder(node.ID, contentID) {
		return nil
	}
	return noOrder("cache the version", contentID)
}

// hasVersionOrder reports whether an instance of a version is on a node, or the node has an order to cache the version.
func (s *Scopes) hasVersionOrder(node, contentID string) bool {
	for _, inst := range s.db.Tables.Instances.Where(record.ByNode, node) {
		if inst.Template.ContentID == contentID && needsTemplate(inst) {
			return true
		}
	}
	for job := range s.openDistributions(node) {
		if job.Template.ContentID == contentID {
			return true
		}
	}
	return false
}

// openDistributions yields the open distributions that a node has not done yet.
func (s *Scopes) openDistributions(node string) iter.Seq[*farm.CacheJob] {
	return func(yield func(*farm.CacheJob) bool) {
		for id, job := range s.db.Tables.CacheJobs.All() {
			if job.Kind != farm.CacheJobDistribute || !job.IsOpen() || !job.HasWorkFor(node) {
				continue
			}
			_, _, done := s.db.Tables.CacheJobResults.Get(record.CacheJobResultID(id, node))
			if !done && !yield(job) {
				return
			}
		}
	}
}

// openSave returns the push of a save that the node has an order for now.
func (s *Scopes) openSave(node, id string) (auth.SaveScope, bool) {
	request, _, ok := s.db.Tables.Saves.Get(id)
	if !ok || request.Status != farm.SavePending {
		return auth.SaveScope{}, false
	}
	inst, _, ok := s.db.Tables.Instances.Get(request.Request.InstanceID)
	if !ok || inst.NodeID != node || inst.Task == nil || inst.Task.ID != id {
		return auth.SaveScope{}, false
	}
	o := request.Request
	save := auth.SaveScope{
		ID: id, TemplateID: o.TemplateID, Name: o.NewTemplateName, Tag: o.Tag,
		BaseTemplateID: inst.Template.ID,
	}
	if o.RevertBeforePush {
		save.RevertTag = &o.RevertTag
	}
	return save, true
}

// ranInstance reports whether an instance is, or was before it ended, on a node.
func (s *Scopes) ranInstance(node, instance string) bool {
	if inst, _, ok := s.db.Tables.Instances.Get(instance); ok {
		return inst.NodeID == node
	}
	for _, p := range s.db.Tables.History.Snapshot().Where(record.ByInstance, instance) {
		if p.NodeID == node {
			return true
		}
	}
	return false
}

// allOrders returns the scope of all orders of a node, the most urgent first: for a node with very
// many orders the token leaves out the rest.
func (s *Scopes) allOrders(node *farm.Node) auth.NodeScope {
	scope := auth.NodeScope{Orders: true, LogRows: rowScope(node)}
	pull := func(template string) {
		if !slices.Contains(scope.PullTemplates, template) {
			scope.PullTemplates = append(scope.PullTemplates, template)
		}
	}
	var all []*farm.Instance
	for _, inst := range s.db.Tables.Instances.Where(record.ByNode, node.ID) {
		all = append(all, inst)
	}
	slices.SortFunc(all, func(a, b *farm.Instance) int { // the one that changed last first
		return cmp.Or(urgency(a)-urgency(b), b.Updated.Compare(a.Updated), cmp.Compare(a.ID, b.ID))
	})
	for _, inst := range all {
		if inst.Task != nil && inst.Task.Kind == farm.TaskSave {
			if save, ok := s.openSave(node.ID, inst.Task.ID); ok {
				scope.Saves = append(scope.Saves, save)
			}
		}
		if needsTemplate(inst) {
			pull(inst.Template.ID)
		}
		scope.LogInstances = append(scope.LogInstances, inst.ID)
	}
	for job := range s.openDistributions(node.ID) {
		pull(job.Template.ID)
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
