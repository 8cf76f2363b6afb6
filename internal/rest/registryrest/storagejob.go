package registryrest

import (
	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

func (s service) getStats(r *rest.Request) (any, error) { return s.registry.Stats(r.Context()) }

// allowOperator allows unauthenticated callers only on the registry's own machine.
func allowOperator(do rest.HandlerFunc) rest.HandlerFunc {
	return func(r *rest.Request) (any, error) {
		if !rest.CallerOf(r.Context()).IsAuthenticated() && !rest.IsLoopbackRequest(r.Request) {
			return nil, farm.Errorf(farm.CodeForbidden,
				"Without authentication, storage maintenance can be requested only from the registry's own machine: "+
					"run the command there, or enable authentication")
		}
		return do(r)
	}
}

func (s service) startStorageJob(r *rest.Request) (any, error) {
	p := r.Params
	req := api.StorageJobRequest{
		Do: p.Required("do"), Deep: p.Bool("deep", false), EmptyTrash: p.Bool("empty_trash", false),
		DryRun: p.Bool("dry_run", false),
	}
	p.JSON("rate", &req.Rate)
	if err := p.Err(); err != nil {
		return nil, err
	}
	return s.registry.StartStorageJob(req)
}

func (s service) getStorageJob(*rest.Request) (any, error) { return s.registry.StorageJobStatus(), nil }

func (s service) cancelStorageJob(*rest.Request) (any, error) {
	s.registry.CancelStorageJob()
	return s.registry.StorageJobStatus(), nil
}
