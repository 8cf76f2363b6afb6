package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/buildyard/buildyard/api"
)

// Client speaks the controller's API.
type Client struct {
	base string
	http *http.Client
}

// callTime bounds one call: as short as the shortest time-out of real clients.
const callTime = 5 * time.Second

// NewClient makes a client of the controller at an address.
func NewClient(base string) Client {
	return Client{base: base, http: &http.Client{Timeout: callTime}}
}

// Refusal is an answer with status FAIL: the controller heard the call and said no.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// Send makes one call and decodes the body of an OK answer into out.
func (c Client) Send(ctx context.Context, method, path string, in, out any) error {
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
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer api.Envelope[json.RawMessage]
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s %s: HTTP %d: %w", method, path, resp.StatusCode, err)
	}
	if answer.Status != api.StatusOK {
		return Refusal(answer.Message)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer.Body, out)
}
