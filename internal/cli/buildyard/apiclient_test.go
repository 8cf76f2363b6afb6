package buildyard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/buildyard/buildyard/api"
)

// apiClient makes calls of any form, as the tests need them.
type apiClient struct {
	base string
	http http.Client
}

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
		return err
	}
	defer resp.Body.Close()
	var envelope api.Envelope[json.RawMessage]
	if err := json.NewDecoder(resp.Body).Decode(&envelope); err != nil {
		return err
	}
	if envelope.Status != api.StatusOK {
		return errors.New(envelope.Message)
	}
	if out == nil || len(envelope.Body) == 0 {
		return nil
	}
	return json.Unmarshal(envelope.Body, out)
}
