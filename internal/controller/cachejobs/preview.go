package cachejobs

import (
	"context"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// PreviewDistribution returns what a distribution would do now. It changes nothing.
func (j *Jobs) PreviewDistribution(ctx context.Context, req DistributeRequest) (api.DistributePreview, error) {
	job, err := j.newDistribution(ctx, req)
	if err != nil {
		return api.DistributePreview{}, err
	}
	out := api.DistributePreview{
		TemplateID: job.Template.ID, Tag: job.Template.Tag, Version: job.Template.Version, Nodes: len(job.Nodes),
		NodeBytes: job.Template.Size,
	}
	for _, id := range job.Nodes {
		info := j.db.Tables.NodeInfo(id)
		isSame := func(t farm.NodeTemplate) bool {
			return t.ID == job.Template.ID && t.ContentID == job.Template.ContentID
		}
		switch {
		case slices.ContainsFunc(info.Templates, isSame):
			out.Cached++
			continue
		case slices.Contains(job.WrongOSNodes, id) || slices.Contains(job.WrongArchNodes, id):
			out.Unsuitable++
			continue
		}
		out.ToPull++
		out.TotalBytes += job.Template.Size
		if node, _, ok := j.db.Tables.Nodes.Get(id); ok && node.State == farm.NodeOffline {
			out.Offline++
		}
		if info.DiskSize > 0 && info.FreeDisk < job.Template.Size {
			out.NoSpace++
		}
	}
	return out, nil
}
