package client

import (
	"context"
	"net/http"

	"github.com/buildyard/buildyard/api"
)

const pathPool = "/api/v1/pool"

// NoGroup is the GroupID that removes the group of a pool.
const NoGroup = "none"

// PoolRequest describes a warm pool. In a change nil and "" leave a field as it is; a Tag or TimeZone that points to ""
// is removed.
type PoolRequest struct {
	Name       string            `json:"name,omitempty"`
	TemplateID string            `json:"template_id,omitempty"`
	Tag        *string           `json:"tag,omitempty"`
	GroupID    string            `json:"group_id,omitempty"` // a group's id, or NoGroup
	MinIdle    *int              `json:"min_idle,omitempty"`
	Schedule   *[]api.PoolWindow `json:"schedule,omitempty"`
	TimeZone   *string           `json:"time_zone,omitempty"`
	MaxAge     *int64            `json:"max_age,omitempty"` // seconds; 0: unlimited

	IdempotencyKey string `json:"-"` // of a creation; see NewKey
}

// withBlanks returns the request with a blank in place of "", which the API treats as not given.
func (r PoolRequest) withBlanks() PoolRequest {
	blank := " "
	for _, field := range []**string{&r.Tag, &r.TimeZone} {
		if *field != nil && **field == "" {
			*field = &blank
		}
	}
	return r
}

// CreatePool makes a warm pool.
func (c *Controller) CreatePool(ctx context.Context, r PoolRequest) (api.Pool, error) {
	return fetch[api.Pool](ctx, c.service,
		call{method: http.MethodPost, path: pathPool, body: r.withBlanks(), key: r.IdempotencyKey})
}

// Pools returns the warm pools.
func (c *Controller) Pools(ctx context.Context, o ListOptions) ([]api.Pool, error) {
	return fetch[[]api.Pool](ctx, c.service, get(pathPool, o.query()))
}

// Pool returns one warm pool with its standbys.
func (c *Controller) Pool(ctx context.Context, id string) (api.Pool, error) {
	return fetch[api.Pool](ctx, c.service, get(pathPool, byID(id)))
}

// UpdatePool changes a warm pool.
func (c *Controller) UpdatePool(ctx context.Context, id string, r PoolRequest) error {
	return c.do(ctx,
		call{method: http.MethodPut, path: pathPool, query: byID(id), body: r.withBlanks(), again: true}, nil)
}

// DeletePool removes a warm pool; its standbys end.
func (c *Controller) DeletePool(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: pathPool, query: byID(id), again: true}, nil)
}
