package buildyard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/config"
)

// apiClient speaks the controller's API, as any client does.
type apiClient struct {
	base string
	http http.Client
}

// maxAPIAnswer bounds what is read of an answer, in bytes.
const maxAPIAnswer = 64 << 20

func (c *apiClient) get(ctx context.Context, path string, out any) error {
	return c.send(ctx, http.MethodGet, path, nil, out)
}

// send makes a call and decodes the body of the answer into out, which may be nil.
func (c *apiClient) send(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	return c.answer(resp, out)
}

// unreachable says what to look at when there is no answer.
func (c *apiClient) unreachable(err error) error {
	return fmt.Errorf("the controller at %s cannot be reached: is it running, and is this its address (--controller or %s)? %w",
		c.base, config.Controller, err)
}

// answer decodes the body of an answer into out, which may be nil, or gives the failure it tells of.
func (c *apiClient) answer(resp *http.Response, out any) error {
	var envelope api.Envelope[json.RawMessage]
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAPIAnswer)).Decode(&envelope); err != nil || envelope.Status == "" {
		return fmt.Errorf("%s answers, but not as a controller does (%s): is this the controller's address (--controller or %s)?",
			c.base, resp.Status, config.Controller)
	}
	if envelope.Status != api.StatusOK {
		return errors.New(envelope.Message)
	}
	if out == nil || len(envelope.Body) == 0 {
		return nil
	}
	return json.Unmarshal(envelope.Body, out)
}
