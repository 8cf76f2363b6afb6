package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/buildyard/buildyard/api"
)

// Search returns what matches a text, of all kinds that the caller may list: at most limit of a kind, 0 for the default
// of 8.
func (c *Controller) Search(ctx context.Context, text string, limit int) (api.SearchResult, error) {
	return fetch[api.SearchResult](ctx, c.service, get("/api/v1/search", limited(url.Values{"q": {text}}, limit)))
}

// CompleteFilter returns how the last word of a filter can go on. The resource is instances, nodes or templates; limit
// bounds the values, 0 for the default of 20.
func (c *Controller) CompleteFilter(ctx context.Context, resource, text string, limit int) (api.Completion, error) {
	query := limited(url.Values{"resource": {resource}, "q": {text}}, limit)
	return fetch[api.Completion](ctx, c.service, get("/api/v1/filter/complete", query))
}

// limited adds a limit to a query unless it is 0.
func limited(query url.Values, limit int) url.Values {
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return query
}
