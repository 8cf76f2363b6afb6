package loadgen

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/buildyard/buildyard/api"
)

// InstancesPath is the route of instances.
const InstancesPath = "/api/v1/vm"

// maxResponseBytes limits a response, in bytes: a list of 100,000 instances fits.
const maxResponseBytes = 512 << 20

// Client calls the controller's API over persistent connections. It may be used from many goroutines.
type Client struct {
	base        string
	http        *http.Client
	contentType string // of bodies; "": no header is sent
	credentials Credentials
}

// Credentials defines how a client authenticates. The zero value is anonymous.
type Credentials struct {
	TLS *tls.Config // of https addresses; nil: the system's
	// Authorize adds the caller's credential to a request; nil: anonymous.
	Authorize func(*http.Request) error
	// Renew is called after a 401, and reports whether a new Authorize may succeed; nil: it cannot.
	Renew func(*http.Request) bool
}

// NewClient returns a client for that many concurrent callers. It does not connect.
func NewClient(base string, callers int) *Client {
	return NewClientWithCredentials(base, callers, Credentials{})
}

// NewClientWithCredentials is NewClient for callers that authenticate.
func NewClientWithCredentials(base string, callers int, access Credentials) *Client {
	return &Client{
		base: base, contentType: "application/json", credentials: access,
		http: &http.Client{Transport: &http.Transport{
			TLSClientConfig:     access.TLS,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			MaxIdleConnsPerHost: callers,
			IdleConnTimeout:     time.Minute,
			DisableCompression:  true,
		}},
	}
}

// Close closes the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// withContentType returns a client with another content type of its bodies, over the same connections.
func (c *Client) withContentType(contentType string) *Client {
	other := *c
	other.contentType = contentType
	return &other
}

// APIError is a response with the status FAIL: the controller received the call and refused it.
type APIError struct {
	Code    int // HTTP status
	Message string
}

func (r *APIError) Error() string { return r.Message }

// notFound is the controller's message for an unknown instance.
const notFound = "Not found"

// IsNotFound reports whether the instance is unknown to the controller.
func IsNotFound(err error) bool {
	r, ok := errors.AsType[*APIError](err)
	return ok && r.Message == notFound
}

// IsDenied reports whether the controller rejects the caller's credential or denies access.
func IsDenied(err error) bool {
	r, ok := errors.AsType[*APIError](err)
	return ok && (r.Code == http.StatusUnauthorized || r.Code == http.StatusForbidden)
}

// CallRaw makes one call and returns the unchanged response.
func (c *Client) CallRaw(ctx context.Context, method, path string, body []byte) (answer []byte, code int, err error) {
	resp, err := c.doRequest(ctx, method, path, body)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if resp.ContentLength > 0 && resp.ContentLength < maxResponseBytes {
		b.Grow(int(resp.ContentLength) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(io.LimitReader(resp.Body, maxResponseBytes)); err != nil {
		return nil, resp.StatusCode, fmt.Errorf("%s %s: response interrupted: %w", method, path, err)
	}
	return b.Bytes(), resp.StatusCode, nil
}

// doRequest makes one call, and repeats it once when the credential has expired.
func (c *Client) doRequest(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	for again := false; ; again = true {
		req, err := c.newRequest(ctx, method, path, body)
		if err != nil {
			return nil, err
		}
		resp, err := c.http.Do(req)
		if err != nil || resp.StatusCode != http.StatusUnauthorized || again || c.credentials.Renew == nil ||
			!c.credentials.Renew(req) {
			return resp, err
		}
		_ = resp.Body.Close()
	}
}

func (c *Client) newRequest(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.contentType != "" && len(body) > 0 {
		req.Header.Set("Content-Type", c.contentType)
	}
	if c.credentials.Authorize != nil {
		if err := c.credentials.Authorize(req); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// Call makes one call and returns the body of an OK response; for a FAIL it returns an *APIError.
func (c *Client) Call(ctx context.Context, method, path string, body []byte) (json.RawMessage, error) {
	raw, code, err := c.CallRaw(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	var answer api.Envelope[json.RawMessage]
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, fmt.Errorf("%s %s: status %d without a JSON envelope: %w", method, path, code, err)
	}
	if answer.Status != api.StatusOK {
		return nil, &APIError{code, answer.Message}
	}
	return answer.Body, nil
}

// CreateRequest is the body of a create.
type CreateRequest struct {
	Template   string            `json:"vmid"`
	Tag        string            `json:"tag,omitempty"`
	Count      int               `json:"count,omitempty"`
	Name       string            `json:"name,omitempty"`
	ExternalID string            `json:"external_id,omitempty"`
	Group      string            `json:"group_id,omitempty"`
	Priority   int               `json:"priority,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Script     []byte            `json:"startup_script,omitempty"` // base64 on the wire
	Monitoring bool              `json:"script_monitoring,omitempty"`
}

// Create creates instances and returns their IDs.
func (c *Client) Create(ctx context.Context, o CreateRequest) ([]string, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return c.create(ctx, append(body, '\n'), max(o.Count, 1))
}

func (c *Client) create(ctx context.Context, body []byte, count int) (ids []string, err error) {
	raw, err := c.Call(ctx, http.MethodPost, InstancesPath, body)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &ids); err != nil || len(ids) != count {
		return ids, fmt.Errorf("requested %d instances, got %.100q", count, raw)
	}
	return ids, nil
}

// Get returns one instance.
func (c *Client) Get(ctx context.Context, id string) (inst api.Instance, err error) {
	raw, err := c.Call(ctx, http.MethodGet, InstancesPath+"?id="+url.QueryEscape(id), nil)
	if err != nil {
		return inst, err
	}
	return inst, json.Unmarshal(raw, &inst)
}

// List returns every instance.
func (c *Client) List(ctx context.Context) (items []api.InstanceItem, err error) {
	raw, err := c.Call(ctx, http.MethodGet, InstancesPath, nil)
	if err != nil {
		return nil, err
	}
	return items, json.Unmarshal(raw, &items)
}

// Terminate terminates an instance, with a request body, as every plugin does. Terminating a
// missing instance succeeds.
func (c *Client) Terminate(ctx context.Context, id string) error {
	_, err := c.Call(ctx, http.MethodDelete, InstancesPath, fmt.Appendf(nil, `{"id":%q}`, id))
	if IsNotFound(err) {
		return nil
	}
	return err
}
