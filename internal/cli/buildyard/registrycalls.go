package buildyard

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/transfer"
)

// How long the controller waits for its registry. Clients time out after 5 s, and a start makes two
// calls: the template and the configuration of its version.
const (
	registryTimeout      = 4 * time.Second
	registryStartTimeout = 2 * time.Second
)

// registryCalls are the controller's calls to its registry, each with a timeout that leaves time to
// answer the controller's own client. Shared queries, and calls for an action that is already
// authorized, use the controller's credentials; rights of a caller and changes for it are requested
// on the caller's behalf.
type registryCalls struct {
	client        registryAPI
	address       string
	sharedDetails callGroup[api.TemplateDetail]

	templateBreaker, rightsBreaker breaker // of the calls of a start: the template, and the caller's rights
	rightsCache                    rightsCache
}

var _ registryAPI = (*registryCalls)(nil)

// CallerRights returns the rights of the caller of a request to the controller at the registry; nil is all
// rights.
func (r *registryCalls) CallerRights(ctx context.Context, template string) (*api.CallerRights, error) {
	caller := rest.CallerOf(ctx)
	switch {
	case caller.Unlimited():
		return nil, nil // everything
	case !caller.IsAuthenticated():
		return nil, auth.Forbidden("list_vms") // no call can be made for an unauthenticated caller
	}
	if !r.rightsBreaker.allows(time.Now()) {
		if known, ok := r.rightsCache.get(caller, template); ok {
			return known, nil
		}
		return nil, r.unavailableError()
	}
	rights, err := callWithTimeout(ctx, r, registryStartTimeout, func(ctx context.Context) (*api.CallerRights, error) {
		return r.client.CallerRights(ctx, template)
	})
	r.rightsBreaker.record(ctx, err)
	if err == nil {
		r.rightsCache.put(caller, template, rights)
	} else if known, ok := r.rightsCache.get(caller, template); ok && farm.CodeOf(err) == farm.CodeUnavailable {
		return known, nil
	}
	return rights, err
}

// unavailableError is the error of a call that is not made, since a recent call to the registry failed.
func (r *registryCalls) unavailableError() error {
	return farm.Unavailable(errBreakerOpen, "The registry at %s cannot be reached; try again", r.address)
}

// ListTemplates returns all templates.
func (r *registryCalls) ListTemplates(ctx context.Context) ([]api.Template, error) {
	return callWithTimeout(rest.WithoutCaller(ctx), r, registryTimeout, r.client.ListTemplates)
}

// TemplateDetail returns one template with its versions, as they are at the time of the call or later: the
// next start sees new pushes.
func (r *registryCalls) TemplateDetail(ctx context.Context, id string) (api.TemplateDetail, error) {
	if !r.templateBreaker.allows(time.Now()) {
		return api.TemplateDetail{}, r.unavailableError()
	}
	detail, err := callWithTimeout(rest.WithoutCaller(ctx),
		r, registryStartTimeout, func(ctx context.Context) (api.TemplateDetail, error) {
			return r.sharedDetails.call(ctx,
				id, registryStartTimeout, func(ctx context.Context) (api.TemplateDetail, error) {
					return r.client.TemplateDetail(ctx, id)
				})
		})
	r.templateBreaker.record(ctx, err)
	return detail, err
}

// VersionConfig returns the configuration of a version.
func (r *registryCalls) VersionConfig(ctx context.Context, ref transfer.VersionRef) (api.TemplateConfig, error) {
	return callWithTimeout(rest.WithoutCaller(ctx),
		r, registryStartTimeout, func(ctx context.Context) (api.TemplateConfig, error) {
			return r.client.VersionConfig(ctx, ref)
		})
}

// DiskInfo returns the free space of the registry's disk.
func (r *registryCalls) DiskInfo(ctx context.Context) (api.DiskInfo, error) {
	return callWithTimeout(rest.WithoutCaller(ctx), r, registryTimeout, r.client.DiskInfo)
}

// Status returns the status of the registry.
func (r *registryCalls) Status(ctx context.Context) (api.RegistryStatus, error) {
	return callWithTimeout(rest.WithoutCaller(ctx), r, registryTimeout-500*time.Millisecond, r.client.Status)
}

// DeleteTemplate removes a template with all its versions.
func (r *registryCalls) DeleteTemplate(ctx context.Context, id string) error {
	_, err := callWithTimeout(ctx, r, registryTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.client.DeleteTemplate(ctx, id)
	})
	return err
}

// Revert removes a version and all newer ones. The caller looked for the version before.
func (r *registryCalls) Revert(ctx context.Context, ref transfer.VersionRef) error {
	_, err := callWithTimeout(ctx, r, registryStartTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.client.Revert(ctx, ref)
	})
	return err
}

// PauseGC suspends garbage collection in the registry for a time.
func (r *registryCalls) PauseGC(ctx context.Context, length time.Duration) error {
	_, err := callWithTimeout(ctx, r, registryTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.client.PauseGC(ctx, length)
	})
	return err
}

// UploadFile stores a file on the registry's file server.
func (r *registryCalls) UploadFile(ctx context.Context, name string, content []byte) error {
	_, err := callWithTimeout(rest.WithoutCaller(ctx), r, registryTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.client.UploadFile(ctx, name, content)
	})
	return err
}

// DownloadFile returns a file of the registry's file server.
func (r *registryCalls) DownloadFile(ctx context.Context, name string, most int64) ([]byte, error) {
	return callWithTimeout(rest.WithoutCaller(ctx), r, registryTimeout, func(ctx context.Context) ([]byte, error) {
		return r.client.DownloadFile(ctx, name, most)
	})
}

// RemoveFile removes a file of the registry's file server.
func (r *registryCalls) RemoveFile(ctx context.Context, name string) error {
	_, err := callWithTimeout(rest.WithoutCaller(ctx), r, registryTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.client.RemoveFile(ctx, name)
	})
	return err
}

// callWithTimeout makes a call within its time limit, and names the registry that did not answer.
func callWithTimeout[T any](
	ctx context.Context, r *registryCalls, limit time.Duration, do func(context.Context) (T, error),
) (T, error) {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := do(within)
	if farm.CodeOf(err) == farm.CodeUnauthenticated {
		return out, credentialsRejected(r.address, err)
	}
	if err != nil && (within.Err() != nil || farm.CodeOf(err) == farm.CodeUnavailable) && ctx.Err() == nil {
		err = farm.Unavailable(err, "The registry at %s cannot be reached; try again", r.address)
	}
	return out, err
}
