package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/buildyard/buildyard/api"
)

// PutVersionFindings stores the vulnerabilities in a version, in place of older ones, or in addition if they are
// partial. It returns ErrConflict if there are those of a newer vulnerability database.
func (c *Controller) PutVersionFindings(ctx context.Context, v api.VersionFindings) error {
	return c.do(ctx, call{method: http.MethodPut, path: api.PathVersionFindings, body: v, again: true}, nil)
}

// ReportedVersions returns the last reports about versions.
func (c *Controller) ReportedVersions(ctx context.Context) ([]api.ReportedVersion, error) {
	return fetch[[]api.ReportedVersion](ctx, c.service, get(api.PathVersionFindings, nil))
}

// Affected returns the versions, nodes and instances that vulnerabilities affect, as far as scans reported it.
func (c *Controller) Affected(ctx context.Context, ids ...string) (api.Affected, error) {
	q := url.Values{"id": {strings.Join(ids, ",")}}
	return fetch[api.Affected](ctx, c.service, get(api.PathAffected, q))
}
