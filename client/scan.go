package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/api"
)

const pathScan = "/registry/v2/vm/scan"

// scanTimeout is the timeout of one try that sends or reads a report.
const scanTimeout = 10 * time.Minute

// scanQuery returns the query of a version. Its number has another name, since "version" is the scanner's.
func (v Version) scanQuery(id string) url.Values {
	q := byID(id)
	set(q, "tag", v.Tag)
	if v.Number != nil {
		q.Set("number", strconv.Itoa(*v.Number))
	}
	return q
}

// PutScan attaches scan results to a version, in place of older results. With scan.ContentID, it returns
// ErrConflict if the version has other content by now.
func (r *Registry) PutScan(ctx context.Context, id string, v Version, scan api.TemplateScan) error {
	put := call{method: http.MethodPut, path: pathScan, query: v.scanQuery(id), body: scan, again: true}
	return r.withTimeout(scanTimeout).do(ctx, put, nil)
}

// GetScan returns the scan results of a version; ErrNotFound when none are attached.
func (r *Registry) GetScan(ctx context.Context, id string, v Version) (api.TemplateScan, error) {
	return fetch[api.TemplateScan](ctx, r.withTimeout(scanTimeout), get(pathScan, v.scanQuery(id)))
}

// DeleteScan removes the scan results of a version; ErrNotFound when none are attached.
func (r *Registry) DeleteScan(ctx context.Context, id string, v Version) error {
	return r.do(ctx, call{method: http.MethodDelete, path: pathScan, query: v.scanQuery(id)}, nil)
}

// withTimeout returns the service with a longer timeout per try.
func (s *service) withTimeout(timeout time.Duration) *service {
	slow := *s
	slow.timeout = max(timeout, s.timeout)
	return &slow
}

// TemplateScan returns the scan results of a version; ErrNotFound when none are attached.
func (c *Controller) TemplateScan(ctx context.Context, id string, v Version) (api.TemplateScan, error) {
	return fetch[api.TemplateScan](ctx, c.withTimeout(scanTimeout), get(pathTemplate+"/scan", v.scanQuery(id)))
}
