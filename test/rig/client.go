package rig

import (
	"bufio"
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
	base   string
	http   *http.Client
	stream *http.Client // without a limit in time
}

// callTime bounds one call: as short as the shortest time-out of real clients.
const callTime = 5 * time.Second

// NewClient makes a client of the controller at an address.
func NewClient(base string) Client {
	transport := &http.Transport{MaxIdleConnsPerHost: idleConns, IdleConnTimeout: time.Minute}
	return Client{
		base: base, http: &http.Client{Timeout: callTime, Transport: transport},
		stream: &http.Client{Transport: transport},
	}
}

// By returns the client over connections of the caller's.
func (c Client) By(transport http.RoundTripper) Client {
	return Client{
		base: c.base, http: &http.Client{Timeout: callTime, Transport: transport},
		stream: &http.Client{Transport: transport},
	}
}

// idleConns are kept for the next calls; a load of many callers would otherwise open a
// connection for nearly each of them.
const idleConns = 256

// Refusal is an answer with status FAIL: the controller received the call and refused it.
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

// Stream reads an answer without an end, line by line, until it ends after all, each
// fails, or the context ends.
func (c Client) Stream(ctx context.Context, path string, each func(line []byte) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return err
	}
	resp, err := c.stream.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: HTTP %d", path, resp.StatusCode)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if err := each(lines.Bytes()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// maxLine bounds one line of a stream.
const maxLine = 1 << 20
