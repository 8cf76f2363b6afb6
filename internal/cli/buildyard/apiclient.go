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

// apiClient speaks the API of a service, as any client does.
type apiClient struct {
	base string
	http http.Client
	peer peer // the zero value is a controller
}

// peer is the kind of service that a client asks, for what is said when it does not answer.
type peer struct{ name, key, flag string }

// named gives the peer with its names.
func (p peer) named() peer {
	if p.name == "" {
		return peer{name: "controller", key: config.Controller, flag: "--controller"}
	}
	return p
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
	p := c.peer.named()
	return fmt.Errorf("the %s at %s cannot be reached: is it running, and is this its address (%s or %s)? %w",
		p.name, c.base, p.flag, p.key, err)
}

// answer decodes the body of an answer into out, which may be nil, or gives the failure it tells of.
func (c *apiClient) answer(resp *http.Response, out any) error {
	var envelope api.Envelope[json.RawMessage]
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAPIAnswer)).Decode(&envelope); err != nil || envelope.Status == "" {
		p := c.peer.named()
		return fmt.Errorf("%s answers, but not as a %s does (%s): is this the %s's address (%s or %s)?",
			c.base, p.name, resp.Status, p.name, p.flag, p.key)
	}
	if envelope.Status != api.StatusOK {
		return errors.New(envelope.Message)
	}
	if out == nil || len(envelope.Body) == 0 {
		return nil
	}
	return json.Unmarshal(envelope.Body, out)
}
