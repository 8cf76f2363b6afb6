package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/buildyard/buildyard/api"
)

const pathTemplate = "/api/v1/registry/vm"

// Version selects a version of a template. The zero value is the latest one.
type Version struct {
	Tag    string
	Number *int // serial number, 0-indexed; nil: not given
}

func (v Version) query(id string) url.Values {
	q := byID(id)
	set(q, "tag", v.Tag)
	if v.Number != nil {
		q.Set("version", strconv.Itoa(*v.Number))
	}
	return q
}

// Templates returns the templates of the registry.
func (c *Controller) Templates(ctx context.Context, o ListOptions) ([]api.Template, error) {
	return fetch[[]api.Template](ctx, c.service, get(pathTemplate, o.query()))
}

// Template returns one template with its versions, the oldest first.
func (c *Controller) Template(ctx context.Context, id string) (api.TemplateDetail, error) {
	return one[api.TemplateDetail](ctx, c.service, pathTemplate, id)
}

// DeleteTemplate removes a template with all its versions from the registry.
func (c *Controller) DeleteTemplate(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: pathTemplate, query: byID(id)}, nil)
}

// RevertTemplate removes a version and all newer ones.
func (c *Controller) RevertTemplate(ctx context.Context, id string, v Version) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/api/v1/registry/revert", query: v.query(id)}, nil)
}
