package transfer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// SendLogRows sends rows for the central logs, once. After farm.CodeInvalid and CodeRefused a retry does not help.
func (c *Client) SendLogRows(ctx context.Context, rows []api.LogRow) (taken api.LogAppendResult, err error) {
	err = c.doCall(ctx, apiCall{method: http.MethodPost, path: api.PathLog, request: rows, result: &taken})
	return taken, err
}

// SendEvents sends events, each one JSON object, for the event log, once: all of them are written or none. A call
// with an unknown outcome may have taken effect.
func (c *Client) SendEvents(ctx context.Context, events []byte) error {
	return c.putRaw(ctx, http.MethodPost, api.PathLogEvent, events)
}

// UploadFile stores a small file below the registry's files, and replaces one of the same name.
func (c *Client) UploadFile(ctx context.Context, name string, content []byte) error {
	path := registryFilePath(name)
	return c.retry(ctx, "PUT "+path, func() error { return c.putRaw(ctx, http.MethodPut, path, content) })
}

// registryFilePath is the path of a file of the registry's files.
func registryFilePath(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return "/registry/files/" + strings.Join(parts, "/")
}

// DownloadFile returns a file below the registry's files of at most most bytes, in one call.
func (c *Client) DownloadFile(ctx context.Context, name string, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	req, err := c.newRequest(ctx, http.MethodGet, c.base.String()+registryFilePath(name), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.send(req)
	if err != nil {
		return nil, unreachableError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") == "application/json" {
		return nil, responseError(resp)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return nil, unreachableError(err)
	case int64(len(raw)) > most:
		return nil, farm.Errorf(farm.CodeTooLarge, "The file %s has more than %d bytes", name, most)
	}
	return raw, nil
}

// RemoveFile removes a file below the registry's files; farm.CodeNotFound when there is none.
func (c *Client) RemoveFile(ctx context.Context, name string) error {
	return c.doCall(ctx, apiCall{method: http.MethodDelete, path: "/registry/files/" + name}) // call escapes the path
}

// putRaw sends a body as it is, once.
func (c *Client) putRaw(ctx context.Context, method, path string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	req, err := c.newRequest(ctx, method, c.base.String()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.send(req)
	if err != nil {
		return unreachableError(err)
	}
	defer resp.Body.Close()
	if err := decodeEnvelope(resp, nil); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}
