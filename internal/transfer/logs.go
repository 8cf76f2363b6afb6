package transfer

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/buildyard/buildyard/api"
)

// Log sends rows for the central logs, once. farm.CodeInvalid and CodeRefused: they are never taken.
func (c *Client) Log(ctx context.Context, rows []api.LogRow) (taken api.LogTaken, err error) {
	err = c.call(ctx, call{method: http.MethodPost, path: api.PathLog, in: rows, out: &taken})
	return taken, err
}

// Events sends events, each one JSON object, for the event log, once: all of them are written or none. A call whose
// outcome is unknown may have been carried out.
func (c *Client) Events(ctx context.Context, events []byte) error {
	return c.putRaw(ctx, http.MethodPost, api.PathLogEvent, events)
}

// Upload stores a small file below the registry's files, in the place of one of that name.
func (c *Client) Upload(ctx context.Context, name string, content []byte) error {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	path := "/registry/files/" + strings.Join(parts, "/")
	return c.retry(ctx, "PUT "+path, func() error { return c.putRaw(ctx, http.MethodPut, path, content) })
}

// putRaw sends a body as it is, once.
func (c *Client) putRaw(ctx context.Context, method, path string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	req, err := c.request(ctx, method, c.base.String()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.send(req)
	if err != nil {
		return unreachable(err)
	}
	defer resp.Body.Close()
	if err := decode(resp, nil); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}
