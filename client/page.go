package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/buildyard/buildyard/api"
)

// PageOptions selects a part of a table.
type PageOptions struct {
	Filter string // expression, as in ListOptions
	Sort   string // a field of the filter; -age reverses the order
	Skip   int    // number of rows to skip
	Limit  int    // 0: 100
}

func (o PageOptions) query() url.Values {
	q := url.Values{}
	set(q, "filter", o.Filter)
	set(q, "sort", o.Sort)
	if o.Skip > 0 {
		q.Set("skip", strconv.Itoa(o.Skip))
	}
	if o.Limit > 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	return q
}

// InstancePage returns a part of the instances, with the counts of all that match.
func (c *Controller) InstancePage(ctx context.Context, o PageOptions) (api.InstancePage, error) {
	return fetch[api.InstancePage](ctx, c.service, get(pathVM+"/page", o.query()))
}

// NodePage returns a part of the nodes, with the counts of all that match.
func (c *Controller) NodePage(ctx context.Context, o PageOptions) (api.NodePage, error) {
	return fetch[api.NodePage](ctx, c.service, get("/api/v1/node/page", o.query()))
}

// TemplatePage returns a part of the templates, with the number of nodes that cache each.
func (c *Controller) TemplatePage(ctx context.Context, o PageOptions) (api.TemplatePage, error) {
	return fetch[api.TemplatePage](ctx, c.service, get(pathTemplate+"/page", o.query()))
}

// TemplateNodes returns the nodes that cache versions of a template, by name.
func (c *Controller) TemplateNodes(ctx context.Context, id string) ([]api.TemplateNode, error) {
	return one[[]api.TemplateNode](ctx, c.service, pathTemplate+"/nodes", id)
}
