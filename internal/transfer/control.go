package transfer

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// VersionRef names a version of a template. With Tag and Version both unset it is the latest.
type VersionRef struct {
	ID     string // template UUID
	Tag    string
	Number *int // serial number, 0-indexed
	// ContentID, when set, must be the version's; a version that has it is found even when Tag and Version are
	// unset. Only Pull uses it.
	ContentID string
}

func (r VersionRef) query() url.Values {
	q := url.Values{"id": {r.ID}}
	if r.Tag != "" {
		q.Set("tag", r.Tag)
	}
	if r.Number != nil {
		q.Set("version", strconv.Itoa(*r.Number))
	}
	if r.ContentID != "" {
		q.Set("content_id", r.ContentID)
	}
	return q
}

// ListTemplates returns all templates without their versions.
func (c *Client) ListTemplates(ctx context.Context) ([]api.Template, error) {
	var out []api.Template
	err := c.doCall(ctx, apiCall{method: http.MethodGet, path: "/registry/v2/vm", result: &out, idempotent: true})
	return out, err
}

// TemplateDetail returns one template with its versions, oldest first. farm.CodeNotFound when there is none.
func (c *Client) TemplateDetail(ctx context.Context, id string) (api.TemplateDetail, error) {
	var out api.TemplateDetail
	q := url.Values{"id": {id}}
	err := c.doCall(ctx,
		apiCall{method: http.MethodGet, path: "/registry/v2/vm", query: q, result: &out, idempotent: true})
	return out, err
}

// CallerRights returns what the caller may do at the registry: with one template, or with all of them for "".
func (c *Client) CallerRights(ctx context.Context, template string) (*api.CallerRights, error) {
	out, q := &api.CallerRights{}, url.Values{}
	if template != "" {
		q.Set("id", template)
	}
	err := c.doCall(ctx,
		apiCall{method: http.MethodGet, path: "/registry/v2/rights", query: q, result: out, idempotent: true})
	return out, err
}

// VersionConfig returns a version's configuration. farm.CodeNotFound: template not found; farm.CodeNoVersion: version
// not found; farm.CodeRefused: the stored text is not a configuration.
func (c *Client) VersionConfig(ctx context.Context, ref VersionRef) (api.TemplateConfig, error) {
	var raw json.RawMessage
	err := c.doCall(ctx,
		apiCall{method: http.MethodGet, path: "/registry/vm/info", query: ref.query(), result: &raw, idempotent: true})
	if err != nil {
		return api.TemplateConfig{}, err
	}
	return ParseConfig(ref.ID, raw)
}

// ParseConfig parses the configuration of a version of template id. It returns farm.CodeRefused if raw is not a
// configuration.
func ParseConfig(id string, raw []byte) (api.TemplateConfig, error) {
	var out api.TemplateConfig
	if err := json.Unmarshal(raw, &out); err != nil {
		// The registry answered: the stored configuration is wrong, and a retry does not help.
		return api.TemplateConfig{}, &farm.Error{
			Code: farm.CodeRefused, Message: fmt.Sprintf("Template %s has a damaged configuration", id), Err: err,
		}
	}
	return out, nil
}

// Revert removes a version and all newer ones. It is sent once: repeated, it might remove one more.
func (c *Client) Revert(ctx context.Context, ref VersionRef) error {
	return c.doCall(ctx, apiCall{method: http.MethodDelete, path: "/registry/revert", query: ref.query()})
}

// DeleteTemplate removes a template with all its versions.
func (c *Client) DeleteTemplate(ctx context.Context, id string) error {
	return c.doCall(ctx, apiCall{method: http.MethodDelete, path: "/registry/vm", query: url.Values{"id": {id}}})
}

// SetArch sets a template's architecture to "amd64" or "arm64".
func (c *Client) SetArch(ctx context.Context, id, arch string) error {
	in := map[string]string{"id": id, "arch": arch}
	return c.doCall(ctx, apiCall{method: http.MethodPut, path: "/registry/vm/arch", request: in, idempotent: true})
}

// DiskInfo returns the space of the registry's file system.
func (c *Client) DiskInfo(ctx context.Context) (api.DiskInfo, error) {
	var out api.DiskInfo
	err := c.doCall(ctx, apiCall{method: http.MethodGet, path: "/registry/disk", result: &out, idempotent: true})
	return out, err
}

// Status returns the registry's state, version and list of damaged templates.
func (c *Client) Status(ctx context.Context) (api.RegistryStatus, error) {
	var out api.RegistryStatus
	err := c.doCall(ctx, apiCall{method: http.MethodGet, path: "/registry/status", result: &out, idempotent: true})
	return out, err
}

// PauseGC asks the registry to collect no layers and to keep its trash for a time, in whole seconds; 0 ends the
// pause.
func (c *Client) PauseGC(ctx context.Context, length time.Duration) error {
	in := map[string]int{"seconds": int(length / time.Second)}
	return c.doCall(ctx, apiCall{method: http.MethodPost, path: "/registry/pause", request: in, idempotent: true})
}
