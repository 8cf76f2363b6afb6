package cachejobs

import (
	"cmp"
	"context"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// DistributeRequest requests a version on nodes. The caller has checked types and lengths.
type DistributeRequest struct {
	TemplateID string
	Tag        string
	Version    *int
	NodeSelector
}

// Distribute accepts a distribution and returns the id of its request once that is durable.
func (j *Jobs) Distribute(ctx context.Context, req DistributeRequest) (string, error) {
	job, err := j.newDistribution(ctx, req)
	if err != nil {
		return "", err
	}
	if len(job.Nodes) == 0 {
		return "", farm.Refused("no node matches the request to distribute")
	}
	recorded, err := j.opts.Changes(ctx, api.DistributeAnswer{RequestID: job.ID})
	if err != nil {
		return "", err
	}
	return job.ID, j.create(ctx, job, recorded...)
}

// newDistribution returns the cache job of a request, which may have no nodes. Nothing is stored.
func (j *Jobs) newDistribution(ctx context.Context, req DistributeRequest) (*farm.CacheJob, error) {
	detail, version, err := j.opts.Version(ctx, req.TemplateID, req.Tag, req.Version)
	if err != nil {
		return nil, err
	}
	guest, err := j.opts.Guest(ctx, detail.ID, version)
	if err != nil {
		return nil, err
	}
	nodes, err := j.selectNodes(ctx, req.NodeSelector)
	if err != nil {
		return nil, err
	}

	job := &farm.CacheJob{
		ID: record.NewID(), Kind: farm.CacheJobDistribute, Registry: j.opts.RegistryAddress, RequestedAt: j.db.Now(),
		Nodes: nodes,
		Template: farm.TemplateRef{
			ID: detail.ID, Name: detail.Name, Tag: version.Tag, Version: version.Number, ContentID: version.ContentID,
			Arch: cmp.Or(version.Arch, detail.Arch), Size: version.Size, OS: guest.OS,
			AnkaImage: guest.AnkaImage,
		},
	}
	for _, node := range nodes {
		info, _, ok := j.db.Tables.Infos.Get(node)
		switch {
		case !ok:
		case !info.RunsGuestOf(&job.Template):
			job.WrongOSNodes = append(job.WrongOSNodes, node)
		case job.Template.Arch != "" && info.Arch != job.Template.Arch:
			job.WrongArchNodes = append(job.WrongArchNodes, node)
		}
	}
	return job, nil
}

// Cancel cancels a distribution: nodes that are not done stop. One that has ended stays as it is.
//
// may returns why the caller may not cancel it for an existing node; nil: they may.
func (j *Jobs) Cancel(ctx context.Context, id string, may func(node string) error) error {
	if !record.ValidID(id) {
		return farm.NotFound()
	}
	selected := NodeSelector{May: may}
	table := j.db.Tables.CacheJobs
	_, err := store.Update(ctx, j.db.Store, table, id, func(job *farm.CacheJob) (*farm.CacheJob, error) {
		switch {
		case job == nil || job.Kind != farm.CacheJobDistribute:
			return nil, farm.NotFound()
		case !job.IsOpen():
			return job, nil
		}
		for _, node := range job.Nodes {
			if err := selected.allows(node); err != nil && j.nodeExists(node) {
				return nil, err
			}
		}
		return ended(job, farm.CacheJobCanceled, j.db.Now()), nil
	})
	return err
}
