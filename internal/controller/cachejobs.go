package controller

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Bounds of the cache jobs. In the end each node of a job has its own record.
const (
	MaxCacheJobNodes = 10000  // of one
	maxCacheJobs     = 1000   // open and ended
	maxCacheJobsOpen = 500    // less than maxCacheJobs, so that ended ones fit too
	maxAddressed     = 100000 // nodes of all together
)

// DistributeRequest requests a version on nodes. The caller has checked types and lengths.
type DistributeRequest struct {
	TemplateID string
	Tag        string
	Version    *int
	GroupID    string // only nodes of this group; "": of any
	NodeSelector
}

// NodeSelector selects the nodes of a request.
type NodeSelector struct {
	NodeIDs []string              // empty: all nodes on which the caller may do it
	May     func(id string) error // why they may not do it on a node; nil: they may on all
}

// may returns why the caller may not do this on a node; nil when they may.
func (a NodeSelector) may(id string) error {
	if a.May == nil {
		return nil
	}
	return a.May(id)
}

// CacheJobView is a cache job with the results and progress of its addressed nodes.
type CacheJobView struct {
	*farm.CacheJob
	On map[string]farm.CacheJobResult // node id -> its result, or its progress so far
}

// Distribute accepts a distribution and returns the id of its request once that is durable. The
// nodes' orders are derived from the record.
func (c *Controller) Distribute(ctx context.Context, ask DistributeRequest) (string, error) {
	detail, version, err := c.Templates.PullVersion(ctx, ask.TemplateID, ask.Tag, ask.Version)
	if err != nil {
		return "", err
	}
	nodes, err := c.addressed(ctx, ask.NodeSelector, ask.GroupID)
	if err != nil {
		return "", err
	}
	if len(nodes) == 0 {
		return "", farm.Refused("no node matches the request to distribute")
	}
	e := &farm.CacheJob{
		ID: record.NewID(), Kind: farm.CacheJobDistribute, Registry: c.opts.RegistryAddress, Asked: c.now(),
		Nodes: nodes,
		Template: farm.TemplateRef{
			ID: detail.ID, Name: detail.Name, Tag: version.Tag, Version: version.Number, ContentID: version.ContentID,
			Arch: firstOf(version.Arch, detail.Arch), Size: version.Size,
		},
	}
	for _, node := range nodes {
		info, _, ok := c.tables.Infos.Get(node)
		if ok && e.Template.Arch != "" && info.Arch != e.Template.Arch {
			e.Unfit = append(e.Unfit, node)
		}
	}
	recorded, err := c.Idempotency.Changes(ctx, api.DistributeAnswer{RequestID: e.ID})
	if err != nil {
		return "", err
	}
	return e.ID, c.createCacheJob(ctx, e, recorded...)
}

// addressed returns the ids of nodes, sorted: the named ones, or all that the caller may address,
// and of these those in a group.
func (c *Controller) addressed(ctx context.Context, ask NodeSelector, group string) ([]string, error) {
	if err := c.knowGroup(ctx, group); err != nil {
		return nil, err
	}
	var nodes []string
	in := func(n *farm.Node) bool { return group == "" || slices.Contains(n.Groups, group) }
	if len(ask.NodeIDs) == 0 {
		for id, node := range c.tables.Nodes.All() {
			if in(node) && ask.may(id) == nil {
				nodes = append(nodes, id)
			}
		}
	}
	for _, id := range ask.NodeIDs {
		node, _, err := record.Lookup(ctx, c.tables.Nodes, id)
		if err == nil {
			err = ask.may(id)
		}
		if err != nil {
			return nil, err
		}
		if in(node) {
			nodes = append(nodes, node.ID)
		}
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	if len(nodes) > MaxCacheJobNodes {
		return nil, farm.Refused("%d nodes are too many for one request: select at most %d with node_ids", len(nodes),
			MaxCacheJobNodes)
	}
	return nodes, nil
}

// knowGroup returns an error unless a node group with an id exists; "" needs none.
func (c *Controller) knowGroup(ctx context.Context, id string) error {
	if _, _, ok := c.tables.Groups.Get(id); ok || id == "" {
		return nil
	}
	if !record.ValidID(id) {
		return farm.NotFound()
	}
	group, _, err := c.tables.Groups.GetLinearizable(ctx, id)
	if err == nil && group == nil {
		err = farm.NotFound()
	}
	return err
}

// createCacheJob writes a cache job, with the changes in with, unless there are too many.
func (c *Controller) createCacheJob(ctx context.Context, e *farm.CacheJob, with ...store.Change) error {
	open, nodes := 0, len(e.Nodes)
	for _, other := range c.tables.CacheJobs.All() {
		if other.Open() {
			open++
			nodes += len(other.Nodes)
		}
	}
	switch {
	case open >= maxCacheJobsOpen:
		return farm.Refused(
			"%d distributions and removals are open, which is the most there may be: cancel some, or wait until they "+
				"are done", open)
	case nodes > maxAddressed:
		return farm.Refused(
			"The open distributions and removals have %d nodes together with this one, the most is %d: cancel some, "+
				"or wait until they are done",
			nodes, maxAddressed)
	}
	return c.store.Commit(ctx, append(with, store.Put(c.tables.CacheJobs, e.ID, e, store.IfAbsent))...)
}

// CancelDistribution cancels a distribution: nodes that are not done stop. One that has ended stays
// as it is.
//
// may returns why the caller may not cancel it for an existing node; nil: they may.
func (c *Controller) CancelDistribution(ctx context.Context, id string, may func(node string) error) error {
	if !record.ValidID(id) {
		return farm.NotFound()
	}
	_, err := store.Update(ctx, c.store, c.tables.CacheJobs, id, func(e *farm.CacheJob) (*farm.CacheJob, error) {
		switch {
		case e == nil || e.Kind != farm.CacheJobDistribute:
			return nil, farm.NotFound()
		case !e.Open():
			return e, nil
		}
		for _, node := range e.Nodes {
			if err := (NodeSelector{May: may}).may(node); err != nil && c.nodeExists(node) {
				return nil, err
			}
		}
		return endCacheJob(e, farm.CacheJobCanceled, c.now()), nil
	})
	return err
}

// CacheJob returns one cache job of a kind; farm.CodeNotFound when there is none.
func (c *Controller) CacheJob(ctx context.Context, kind farm.CacheJobKind, id string) (CacheJobView, error) {
	e, _, ok := c.tables.CacheJobs.Get(id)
	if !ok && record.ValidID(id) {
		var err error
		if e, _, err = c.tables.CacheJobs.GetLinearizable(ctx, id); err != nil {
			return CacheJobView{}, err
		}
	}
	if e == nil || e.Kind != kind {
		return CacheJobView{}, farm.NotFound()
	}
	return c.cacheJobView(e), nil
}

// CacheJobs returns at most limit cache jobs of a kind, oldest first, with ids after one and
// accepted by fits. A nil fits accepts all.
func (c *Controller) CacheJobs(
	kind farm.CacheJobKind, after string, limit int, fits func(*farm.CacheJob) bool,
) []CacheJobView {
	var list []CacheJobView
	for _, e := range c.tables.CacheJobs.Range(after, math.MaxInt) {
		if len(list) == limit {
			break
		}
		if e.Kind == kind && (fits == nil || fits(e)) {
			list = append(list, c.cacheJobView(e))
		}
	}
	return list
}

// cacheJobView adds the progress of its nodes to a cache job. The progress of a running pull is in
// memory at the replica that its node polls; the others know it from that replica's digests.
func (c *Controller) cacheJobView(e *farm.CacheJob) CacheJobView {
	view := CacheJobView{CacheJob: e, On: make(map[string]farm.CacheJobResult, len(e.Nodes))}
	outcomes := c.outcomesOf(e.ID)
	for _, node := range e.Nodes {
		o := outcomes[node]
		progress := 0.0
		if o == nil {
			progress = max(c.Link.Sessions.CacheJobProgress(node, e.ID), c.Link.Peers.CacheJobProgress(node, e.ID))
		}
		view.On[node] = e.On(node, o, c.nodeExists(node), progress)
	}
	return view
}

// RemoveFromNodes makes nodes remove their cached versions of a template, and returns the cache
// job; it has no id when no node is addressed. Without named nodes, all that may have a version are
// addressed. The template may already be deleted from the registry.
func (c *Controller) RemoveFromNodes(ctx context.Context, template string, ask NodeSelector) (*farm.CacheJob, error) {
	if uuid.Validate(template) != nil {
		return nil, farm.NotFound()
	}
	template = strings.ToLower(template)
	nodes, err := c.addressed(ctx, ask, "")
	if err != nil {
		return nil, err
	}
	having := c.mayHave(template)
	if len(ask.NodeIDs) == 0 {
		nodes = slices.DeleteFunc(nodes, func(node string) bool { return !having[node] })
	}
	if len(having) == 0 {
		if _, err := c.Templates.Get(ctx, template); farm.CodeOf(err) == farm.CodeNotFound {
			return nil, err
		}
	}
	e := &farm.CacheJob{
		Kind: farm.CacheJobRemove, Template: farm.TemplateRef{ID: template}, Asked: c.now(),
		Nodes: nodes,
	}
	if len(nodes) == 0 {
		return e, nil
	}
	if same := c.sameRemoval(e); same != nil {
		return same, nil
	}
	e.ID = record.NewID()
	return e, c.createCacheJob(ctx, e)
}

// mayHave returns the nodes that have a version of a template by their last report, or that may
// have got one since: by a distribution, or for an instance.
func (c *Controller) mayHave(template string) map[string]bool {
	having := map[string]bool{}
	for node, info := range c.tables.Infos.All() {
		if slices.ContainsFunc(info.Templates,
			func(t farm.NodeTemplate) bool { return strings.EqualFold(t.ID, template) }) {
			having[node] = true
		}
	}
	for _, inst := range c.tables.Instances.All() {
		if inst.Template.ID == template && inst.NodeID != "" {
			having[inst.NodeID] = true
		}
	}
	for _, e := range c.tables.CacheJobs.All() {
		if e.Kind != farm.CacheJobDistribute || e.Template.ID != template {
			continue
		}
		for node, o := range c.outcomesOf(e.ID) {
			having[node] = having[node] || o.Done
		}
	}
	return having
}

// sameRemoval returns an open removal with the same request for all these nodes, none of which has
// a result: a repeated request creates no second one.
func (c *Controller) sameRemoval(like *farm.CacheJob) *farm.CacheJob {
	for _, e := range c.tables.CacheJobs.All() {
		if !e.Open() || e.Kind != farm.CacheJobRemove || e.Template.ID != like.Template.ID ||
			!slices.Equal(e.Nodes, like.Nodes) {
			continue
		}
		if len(c.outcomesOf(e.ID)) == 0 {
			return e
		}
	}
	return nil
}

// outcomesOf returns the results of a cache job so far, by node.
func (c *Controller) outcomesOf(cacheJob string) map[string]*farm.CacheJobResult {
	list := map[string]*farm.CacheJobResult{}
	for id, o := range c.tables.CacheJobResults.Range(cacheJob+".", math.MaxInt) {
		of, node := record.SplitCacheJobResultID(id)
		if of != cacheJob {
			break
		}
		list[node] = o
	}
	return list
}
