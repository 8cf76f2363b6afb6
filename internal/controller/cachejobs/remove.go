package cachejobs

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// Remove makes nodes remove their cached versions of a template, and returns the cache job; it has no
// id when no node is addressed. Without named nodes, all that may have a version are addressed. The
// template may already be deleted from the registry.
func (j *Jobs) Remove(ctx context.Context, template string, s NodeSelector) (*farm.CacheJob, error) {
	if uuid.Validate(template) != nil {
		return nil, farm.NotFound()
	}
	template = strings.ToLower(template)
	nodes, err := j.selectNodes(ctx, s)
	if err != nil {
		return nil, err
	}
	caching := j.mayCache(template)
	if len(s.NodeIDs) == 0 {
		nodes = slices.DeleteFunc(nodes, func(node string) bool { return !caching[node] })
	}
	if len(caching) == 0 {
		if _, err := j.opts.Template(ctx, template); farm.CodeOf(err) == farm.CodeNotFound {
			return nil, err
		}
	}

	job := &farm.CacheJob{
		Kind: farm.CacheJobRemove, Template: farm.TemplateRef{ID: template}, RequestedAt: j.db.Now(), Nodes: nodes,
	}
	if len(nodes) == 0 {
		return job, nil
	}
	if same := j.sameRemoval(job); same != nil {
		return same, nil
	}
	job.ID = record.NewID()
	return job, j.create(ctx, job)
}

// mayCache returns the nodes that have a version of a template by their last report, or that may have
// got one since: by a distribution, or for an instance.
func (j *Jobs) mayCache(template string) map[string]bool {
	nodes := map[string]bool{}
	for node, info := range j.db.Tables.Infos.All() {
		if slices.ContainsFunc(info.Templates,
			func(t farm.NodeTemplate) bool { return strings.EqualFold(t.ID, template) }) {
			nodes[node] = true
		}
	}
	for _, inst := range j.db.Tables.Instances.All() {
		if inst.Template.ID == template && inst.NodeID != "" {
			nodes[inst.NodeID] = true
		}
	}
	for _, job := range j.db.Tables.CacheJobs.All() {
		if job.Kind != farm.CacheJobDistribute || job.Template.ID != template {
			continue
		}
		for node, result := range j.results(job.ID) {
			nodes[node] = nodes[node] || result.Done
		}
	}
	return nodes
}

// sameRemoval returns an open removal with the same request for all these nodes, none of which has a
// result: a repeated request creates no second one.
func (j *Jobs) sameRemoval(like *farm.CacheJob) *farm.CacheJob {
	for _, job := range j.db.Tables.CacheJobs.All() {
		if job.IsOpen() && job.Kind == farm.CacheJobRemove && job.Template.ID == like.Template.ID &&
			slices.Equal(job.Nodes, like.Nodes) && len(j.results(job.ID)) == 0 {
			return job
		}
	}
	return nil
}
