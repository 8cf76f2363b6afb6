package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
)

// patience bounds one request.
const patience = 30 * time.Second

// mostRead bounds what is read of an answer.
const mostRead = 1 << 20

// answer is what came back.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// envelope returns status, message and body of an answer.
func (a answer) envelope() (e struct {
	Status, Message string
	Body            json.RawMessage
},
) {
	_ = json.Unmarshal(a.body, &e)
	return e
}

// caller makes requests from one address, with one credential. The zero value of show shows nothing.
type caller struct {
	by   *http.Client
	show func(*http.Request) error
}

// connections come from a loopback address, so that services count them as another machine's.
func connections(host byte) *http.Transport { return connectionsFrom(net.IPv4(127, 0, 1, host)) }

func connectionsFrom(ip net.IP) *http.Transport {
	dial := &net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}, Timeout: patience}
	return &http.Transport{
		DialContext: dial.DialContext, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
		DisableCompression: true,
	}
}

// from returns a caller without credentials, at a separate address.
func from(host byte) caller {
	return caller{by: &http.Client{
		Transport: connections(host), Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// with returns the caller showing a header.
func (c caller) with(value string) caller {
	c.show = func(r *http.Request) error {
		r.Header.Set("Authorization", value)
		return nil
	}
	return c
}

// as returns the caller with an API key at some services, by sessions that are renewed when they
// end.
func (c caller) as(key *client.APIKey, addresses ...string) (caller, error) {
	services := map[string]*client.Controller{} // credentials are sent to the address that they are for
	for _, address := range addresses {
		service, err := client.NewController(address, client.Options{Credentials: key, Transport: c.by.Transport})
		if err != nil {
			return c, err
		}
		services[address] = service
	}
	c.show = func(r *http.Request) error {
		address := r.URL.Scheme + "://" + r.URL.Host
		if services[address] == nil {
			return fmt.Errorf("nothing is shown at %s", address)
		}
		return services[address].Authorize(r)
	}
	return c, nil
}

// request makes a request: what is method and address, header is names and values in turn.
func (c caller) request(ctx context.Context, what string, body io.Reader, header ...string) (*http.Request, error) {
	method, url, _ := strings.Cut(what, " ")
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	for pair := range slices.Chunk(header, 2) {
		if r.Header.Add(pair[0], pair[1]); pair[0] == "Host" {
			r.Host = pair[1]
		}
	}
	if c.show != nil {
		err = c.show(r)
	}
	return r, err
}

// send makes a request and reads its answer.
func (c caller) send(ctx context.Context, what, body string, header ...string) (a answer, err error) {
	r, err := c.request(ctx, what, strings.NewReader(body), header...)
	if err != nil {
		return a, err
	}
	resp, err := c.by.Do(r)
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }()
	a.code, a.header = resp.StatusCode, resp.Header
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, mostRead))
	return a, err
}

// get makes a request that must succeed and decodes the body of its answer into out.
func (c caller) get(ctx context.Context, what string, in, out any) error {
	raw := []byte(nil)
	if in != nil {
		var err error
		if raw, err = json.Marshal(in); err != nil {
			return err
		}
	}
	a, err := c.send(ctx, what, string(raw))
	if err != nil {
		return err
	}
	e := a.envelope()
	if a.code != http.StatusOK || e.Status != "OK" {
		return fmt.Errorf("%s: %d %.300s", what, a.code, bytes.TrimSpace(a.body))
	}
	if out == nil || len(e.Body) == 0 {
		return nil
	}
	return json.Unmarshal(e.Body, out)
}

// basic is the header of the root user.
func basic(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+token))
}
