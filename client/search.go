package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/buildyard/buildyard/api"
)

// Search returns the records whose name, ID or other visible fields match a text: at most limit of each kind, the
// best first; 0: 8.
func (c *Controller) Search(ctx context.Context, text string, limit int) (api.SearchResult, error) {
	q := url.Values{"q": {text}}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return fetch[api.SearchResult](ctx, c.service, get("/api/v1/search", q))
}

// CompleteFilter returns how the last word of a filter can go on. resource is instances, nodes or templates; limit
// bounds the values; 0: 20.
func (c *Controller) CompleteFilter(ctx context.Context, resource, filter string, limit int) (api.Completion, error) {
	q := url.Values{"resource": {resource}, "q": {filter}}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return fetch[api.Completion](ctx, c.service, get("/api/v1/filter/complete", q))
}
