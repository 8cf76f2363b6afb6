package client

import (
	"context"
	"iter"

	"github.com/buildyard/buildyard/api"
)

// Names that types had before. They go with the next minor release.
type (
	// Explained is the former name of ExplainedInstance.
	//
	// Deprecated: use ExplainedInstance.
	Explained = ExplainedInstance

	// MACUse is the former name of MACFilter.
	//
	// Deprecated: use MACFilter.
	MACUse = MACFilter

	// WatchOptions is the former name of InstanceWatch.
	//
	// Deprecated: use InstanceWatch.
	WatchOptions = InstanceWatch

	// UserKey is the former name of APIKey.
	//
	// Deprecated: use APIKey.
	UserKey = APIKey
)

// ParseUserKey calls ParseAPIKey.
//
// Deprecated: use ParseAPIKey.
func ParseUserKey(id, private string) (*APIKey, error) { return ParseAPIKey(id, private) }

// LoadUserKey calls LoadAPIKey.
//
// Deprecated: use LoadAPIKey.
func LoadUserKey(id, file string) (*APIKey, error) { return LoadAPIKey(id, file) }

// TemplateHolders calls TemplateNodes.
//
// Deprecated: use TemplateNodes.
func (c *Controller) TemplateHolders(ctx context.Context, id string) ([]api.TemplateNode, error) {
	return c.TemplateNodes(ctx, id)
}

// PastInstance calls HistoryInstance.
//
// Deprecated: use HistoryInstance.
func (c *Controller) PastInstance(ctx context.Context, id string) (api.HistoryInstance, error) {
	return c.HistoryInstance(ctx, id)
}

// BeginUpkeep calls StartStorageJob.
//
// Deprecated: use StartStorageJob.
func (r *Registry) BeginUpkeep(ctx context.Context, u api.StorageJobRequest) (api.StorageJob, error) {
	return r.StartStorageJob(ctx, u)
}

// Upkeep calls StorageJob.
//
// Deprecated: use StorageJob.
func (r *Registry) Upkeep(ctx context.Context) (api.StorageJob, error) { return r.StorageJob(ctx) }

// EndUpkeep calls CancelStorageJob.
//
// Deprecated: use CancelStorageJob.
func (r *Registry) EndUpkeep(ctx context.Context) (api.StorageJob, error) {
	return r.CancelStorageJob(ctx)
}

// UnknownVMs calls OrphanedVMs.
//
// Deprecated: use OrphanedVMs.
func (c *Controller) UnknownVMs(ctx context.Context, node string) ([]api.OrphanedVM, error) {
	return c.OrphanedVMs(ctx, node)
}

// Adopt calls ResolveOrphanedVMs.
//
// Deprecated: use ResolveOrphanedVMs.
func (c *Controller) Adopt(ctx context.Context, d api.OrphanDecision) ([]api.OrphanOutcome, error) {
	return c.ResolveOrphanedVMs(ctx, d)
}

// Watch calls WatchInstances.
//
// Deprecated: use WatchInstances.
func (c *Controller) Watch(ctx context.Context, o InstanceWatch) iter.Seq2[Change, error] {
	return c.WatchInstances(ctx, o)
}
