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

// Ref names a version of a template. With Tag and Version both unset it is the latest.
type Ref struct {
	ID      string // template UUID
	Tag     string
	Version *int // serial number, 0-indexed
	// ContentID, when set, must be the version's; a version that has it is found even when Tag and Version are
	// unset. Only Pull uses it.
	ContentID string
}

func (r Ref) query() url.Values {
	q := url.Values{"id": {r.ID}}
	if r.Tag != "" {
		q.Set("tag", r.Tag)
	}
	if r.Version != nil {
		q.Set("version", strconv.Itoa(*r.Version))
	}
	if r.ContentID != "" {
		q.Set("content_id", r.ContentID)
	}
	return q
}

// List returns all templates without their versions.
func (c *Client) List(ctx context.Context) ([]api.Template, error) {
	var out []api.Template
	err := c.call(ctx, call{method: http.MethodGet, path: "/registry/v2/vm", out: &out, repeatable: true})
	return out, err
}

// Detail returns one template with its versions, oldest first. farm.CodeNotFound when there is none.
func (c *Client) Detail(ctx context.Context, id string) (api.TemplateDetail, error) {
	var out api.TemplateDetail
	q := url.Values{"id": {id}}
	err := c.call(ctx, call{method: http.MethodGet, path: "/registry/v2/vm", query: q, out: &out, repeatable: true})
	return out, err
}

// Rights returns what the caller may do at the registry: with one template, or with all of them for "".
func (c *Client) Rights(ctx context.Context, template string) (*api.CallerRights, error) {
	out, q := &api.CallerRights{}, url.Values{}
	if template != "" {
		q.Set("id", template)
	}
	err := c.call(ctx, call{method: http.MethodGet, path: "/registry/v2/rights", query: q, out: out, repeatable: true})
	return out, err
}

// Info returns a version's configuration. farm.CodeNotFound: template not found; farm.CodeNoVersion: version
// not found; farm.CodeRefused: the stored text is not a configuration.
func (c *Client) Info(ctx context.Context, ref Ref) (api.TemplateConfig, error) {
	var raw json.RawMessage
	err := c.call(ctx,
		call{method: http.MethodGet, path: "/registry/vm/info", query: ref.query(), out: &raw, repeatable: true})
	if err != nil {
		return api.TemplateConfig{}, err
	}
	return Config(ref.ID, raw)
}

// Config parses the configuration of a version of template id. It returns farm.CodeRefused if raw is not a
// configuration.
func Config(id string, raw []byte) (api.TemplateConfig, error) {
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
func (c *Client) Revert(ctx context.Context, ref Ref) error {
	return c.call(ctx, call{method: http.MethodDelete, path: "/registry/revert", query: ref.query()})
}

// Delete removes a template with all its versions.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.call(ctx, call{method: http.MethodDelete, path: "/registry/vm", query: url.Values{"id": {id}}})
}

// SetArch sets a template's architecture to "amd64" or "arm64".
func (c *Client) SetArch(ctx context.Context, id, arch string) error {
	in := map[string]string{"id": id, "arch": arch}
	return c.call(ctx, call{method: http.MethodPut, path: "/registry/vm/arch", in: in, repeatable: true})
}

// Disk returns the space of the registry's file system.
func (c *Client) Disk(ctx context.Context) (api.DiskInfo, error) {
	var out api.DiskInfo
	err := c.call(ctx, call{method: http.MethodGet, path: "/registry/disk", out: &out, repeatable: true})
	return out, err
}

// Status returns the registry's state, version and list of damaged templates.
func (c *Client) Status(ctx context.Context) (api.RegistryStatus, error) {
	var out api.RegistryStatus
	err := c.call(ctx, call{method: http.MethodGet, path: "/registry/status", out: &out, repeatable: true})
	return out, err
}

// Pause asks the registry to collect no layers and to keep its trash for a time, in whole seconds; 0 ends the
// pause.
func (c *Client) Pause(ctx context.Context, length time.Duration) error {
	in := map[string]int{"seconds": int(length / time.Second)}
	return c.call(ctx, call{method: http.MethodPost, path: "/registry/pause", in: in, repeatable: true})
}
