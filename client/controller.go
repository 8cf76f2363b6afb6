package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
)

// Controller calls a controller. It may be used from many goroutines.
type Controller struct{ *service }

// NewController makes a client of the controller at an address such as
// http://build.example:8090. It does not connect.
func NewController(address string, o Options) (*Controller, error) {
	s, err := newService("controller", address, o)
	if err != nil {
		return nil, err
	}
	return &Controller{s}, nil
}

// Duration is a time that the API represents as a text such as 90s.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// ListOptions selects a part of a list. The zero value selects all of it.
type ListOptions struct {
	Filter     string // terms such as state:error age>10m; see docs/api-guide.md
	ExternalID string // only instances with this external ID
	Limit      int    // maximum number; 0: no client-side limit
	After      string // those after this id
}

func (o ListOptions) query() url.Values {
	q := url.Values{}
	set(q, "filter", o.Filter)
	set(q, "external_id", o.ExternalID)
	set(q, "after", o.After)
	if o.Limit > 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	return q
}

// RightsQuery selects the objects of a query for rights, in addition to the controller itself.
type RightsQuery struct {
	Nodes    []string // IDs of nodes
	Template string   // ID of a template
}

// Rights returns the permissions of the caller.
func (c *Controller) Rights(ctx context.Context, about RightsQuery) (api.Rights, error) {
	q := url.Values{}
	set(q, "nodes", strings.Join(about.Nodes, ","))
	set(q, "template", about.Template)
	return fetch[api.Rights](ctx, c.service, get("/api/v1/rights", q))
}

// set sets a parameter unless it is empty.
func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func byID(id string) url.Values { return url.Values{"id": {id}} }

// fetch makes a call and returns the body of its response.
func fetch[T any](ctx context.Context, s *service, c call) (out T, err error) {
	err = s.do(ctx, c, &out)
	return out, err
}

// one requests a single object. An empty ID would select all of them.
func one[T any](ctx context.Context, s *service, path, id string) (out T, err error) {
	if id == "" {
		return out, &Error{Code: ErrInvalid, Message: "id: is required", Method: http.MethodGet, Path: path}
	}
	return fetch[T](ctx, s, get(path, byID(id)))
}

// Live reports whether the service is alive.
func (s *service) Live(ctx context.Context) error { return s.do(ctx, get("/livez", nil), nil) }

// Ready reports whether the service can serve.
func (s *service) Ready(ctx context.Context) error { return s.do(ctx, get("/readyz", nil), nil) }

// Status returns the status of the controller.
func (c *Controller) Status(ctx context.Context) (api.ControllerStatus, error) {
	return fetch[api.ControllerStatus](ctx, c.service, get("/api/v1/status", nil))
}

// RegistryDisk returns the space of the registry's disk.
func (c *Controller) RegistryDisk(ctx context.Context) (api.DiskInfo, error) {
	return fetch[api.DiskInfo](ctx, c.service, get("/api/v1/registry/disk", nil))
}

const pathMaintenance = "/api/v1/maintenance"

// Maintenance returns the status of the maintenance mode.
func (c *Controller) Maintenance(ctx context.Context) (api.Maintenance, error) {
	return fetch[api.Maintenance](ctx, c.service, get(pathMaintenance, nil))
}

// BeginMaintenance starts the maintenance mode, or changes its end and reason.
func (c *Controller) BeginMaintenance(ctx context.Context, b api.BeginMaintenance) (api.Maintenance, error) {
	return fetch[api.Maintenance](ctx, c.service,
		call{method: http.MethodPost, path: pathMaintenance, body: b, again: true})
}

// EndMaintenance ends the maintenance mode; without one it does nothing.
func (c *Controller) EndMaintenance(ctx context.Context) error {
	return c.do(ctx, call{method: http.MethodDelete, path: pathMaintenance, again: true}, nil)
}

// Backup starts a backup of all data of the controller: a database, then its sha256 as the last 32 bytes. Size
// is the approximate number of bytes.
func (c *Controller) Backup(ctx context.Context) (*Stream, error) {
	resp, err := c.open(ctx, get(api.PathBackup, nil)) //nolint:bodyclose // the reader of the stream closes it
	if err != nil {
		return nil, err
	}
	return &Stream{ReadCloser: resp.Body, Size: sizeIn(resp.Header, api.HeaderBackupSize)}, nil
}
