package client

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/buildyard/buildyard/api"
)

// Registry calls a registry. It may be used from many goroutines.
type Registry struct{ *service }

// kindRegistry is the name of the service in messages.
const kindRegistry = "registry"

// NewRegistry makes a client of the registry at an address such as
// http://build.example:8089. It does not connect.
func NewRegistry(address string, o Options) (*Registry, error) {
	s, err := newService(kindRegistry, address, o)
	if err != nil {
		return nil, err
	}
	return &Registry{s}, nil
}

const (
	pathStoreV1  = "/registry/vm"
	pathStore    = "/registry/v2/vm"
	pathUpkeep   = "/registry/v2/upkeep"
	pathStoreRev = "/registry/revert"
)

// Status returns the status of the registry.
func (r *Registry) Status(ctx context.Context) (api.RegistryStatus, error) {
	return fetch[api.RegistryStatus](ctx, r.service, get("/registry/status", nil))
}

// Disk returns the space of the registry's disk.
func (r *Registry) Disk(ctx context.Context) (api.DiskInfo, error) {
	return fetch[api.DiskInfo](ctx, r.service, get("/registry/disk", nil))
}

// Names returns the names of all templates by their IDs, from the first version of the list.
func (r *Registry) Names(ctx context.Context) (map[string]string, error) {
	list, err := fetch[[]map[string]string](ctx, r.service, get(pathStoreV1, nil))
	names := make(map[string]string, len(list))
	for _, pair := range list {
		maps.Copy(names, pair)
	}
	return names, err
}

// Templates returns all templates.
func (r *Registry) Templates(ctx context.Context) ([]api.Template, error) {
	return fetch[[]api.Template](ctx, r.service, get(pathStore, nil))
}

// Template returns one template with its versions, the oldest first.
func (r *Registry) Template(ctx context.Context, id string) (api.TemplateDetail, error) {
	return one[api.TemplateDetail](ctx, r.service, pathStore, id)
}

// Config returns the configuration of a version. Fields beyond api.TemplateConfig are in the raw form.
func (r *Registry) Config(
	ctx context.Context, id string, v Version,
) (config api.TemplateConfig, raw json.RawMessage, err error) {
	err = r.do(ctx, get(pathStoreV1+"/info", v.query(id)), &raw)
	if err == nil {
		err = json.Unmarshal(raw, &config)
	}
	return config, raw, err
}

// DeleteTemplate removes a template with all its versions.
func (r *Registry) DeleteTemplate(ctx context.Context, id string) error {
	return r.do(ctx, call{method: http.MethodDelete, path: pathStoreV1, query: byID(id)}, nil)
}

// RevertTemplate removes a version and all newer ones.
func (r *Registry) RevertTemplate(ctx context.Context, id string, v Version) error {
	return r.do(ctx, call{method: http.MethodDelete, path: pathStoreRev, query: v.query(id)}, nil)
}

// SetArch sets the architecture of a template: amd64 or arm64.
func (r *Registry) SetArch(ctx context.Context, id, arch string) error {
	body := map[string]string{"id": id, "arch": arch}
	return r.do(ctx, call{method: http.MethodPut, path: pathStoreV1 + "/arch", body: body, again: true}, nil)
}

// Pause keeps the registry from collecting layers and emptying its trash for a time.
func (r *Registry) Pause(ctx context.Context, length time.Duration) error {
	body := map[string]int64{"seconds": int64((length + time.Second - 1) / time.Second)}
	return r.do(ctx, call{method: http.MethodPost, path: "/registry/pause", body: body, again: true}, nil)
}

// Rights returns what the caller may do: with one template, or with all of them for "".
func (r *Registry) Rights(ctx context.Context, template string) (*api.CallerRights, error) {
	query := url.Values{}
	if template != "" {
		query.Set("id", template)
	}
	return fetch[*api.CallerRights](ctx, r.service, get("/registry/v2/rights", query))
}

// Stats returns statistics of the storage's use.
func (r *Registry) Stats(ctx context.Context) (api.RegistryStats, error) {
	return fetch[api.RegistryStats](ctx, r.service, get("/registry/v2/stats", nil))
}

// StartStorageJob starts a storage job; one runs at a time. Without authentication the registry accepts this
// and the two calls below only from its own machine.
func (r *Registry) StartStorageJob(ctx context.Context, u api.StorageJobRequest) (api.StorageJob, error) {
	return fetch[api.StorageJob](ctx, r.service, call{method: http.MethodPost, path: pathUpkeep, body: u})
}

// StorageJob returns the status of the last storage job.
func (r *Registry) StorageJob(ctx context.Context) (api.StorageJob, error) {
	return fetch[api.StorageJob](ctx, r.service, get(pathUpkeep, nil))
}

// CancelStorageJob cancels the running storage job.
func (r *Registry) CancelStorageJob(ctx context.Context) (api.StorageJob, error) {
	return fetch[api.StorageJob](ctx, r.service, call{method: http.MethodDelete, path: pathUpkeep, again: true})
}
