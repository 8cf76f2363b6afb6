package transfer

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	defaultIdleTimeout = 30 * time.Second
	defaultAttempts    = 8
	controlTimeout     = 30 * time.Second
	maxResponseBytes   = 64 << 20 // bytes of a control response
)

// Options configures the connection to a registry.
type Options struct {
	// BaseURL is the registry's address: scheme, host, port and, behind a proxy, a path.
	BaseURL string
	// Mirror is the address of a mirror of the registry for pulls; "": none. What fails there goes to the registry.
	Mirror string
	// TLS is used for https; see package clienttls. nil means the system's defaults.
	TLS *tls.Config
	// Dial makes connections instead of the network; nil: the network is used.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// DialTLS makes connections for https, with a configuration that may change; nil: TLS is used.
	DialTLS func(ctx context.Context, network, address string) (net.Conn, error)
	// Authorize puts credentials on a request. It is called before every attempt, so it may renew
	// them, and only for requests to the hosts of BaseURL and Mirror.
	Authorize func(*http.Request) error
	// RenewCredentials is called when the registry answered 401 to a request with such credentials. It reports whether
	// a new call of Authorize may succeed. nil: it cannot.
	RenewCredentials func(*http.Request) bool
	// Logger gets retries at Debug level, and failures of the mirror at Warn level. nil means no log.
	Logger *slog.Logger
	// IdleTimeout ends an attempt on which no byte moved for that long; 0 means 30 s. The total time of a transfer is
	// not limited.
	IdleTimeout time.Duration
	// MaxAttempts is how often one request is tried before its error is returned; 0 means 8.
	MaxAttempts int
}

// Client is a client of one registry. It may be used from many goroutines.
type Client struct {
	base             *url.URL
	mirror           *url.URL // nil: none
	http             *http.Client
	authorize        func(*http.Request) error
	renewCredentials func(*http.Request) bool
	log              *slog.Logger
	idleTimeout      time.Duration
	maxAttempts      int
	indexChunkBytes  int // how much of an index is sent in one request
	sources          sourceHealth
}

// New checks the options; it does not connect.
func New(o Options) (*Client, error) {
	base, err := parseAddress("registry", o.BaseURL)
	if err != nil {
		return nil, err
	}
	var mirror *url.URL
	if o.Mirror != "" {
		if mirror, err = parseAddress("registry-mirror", o.Mirror); err != nil {
			return nil, err
		}
	}
	c := &Client{
		base: base, mirror: mirror, http: &http.Client{Transport: transport(o)}, authorize: o.Authorize,
		renewCredentials: o.RenewCredentials,
		log:              o.Logger, idleTimeout: o.IdleTimeout, maxAttempts: o.MaxAttempts,
		indexChunkBytes: indexChunkSize,
	}
	c.http.CheckRedirect = c.checkRedirect
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.idleTimeout <= 0 {
		c.idleTimeout = defaultIdleTimeout
	}
	if c.maxAttempts <= 0 {
		c.maxAttempts = defaultAttempts
	}
	return c, nil
}

// parseAddress reads the address of a service.
func parseAddress(name, text string) (*url.URL, error) {
	address, err := url.Parse(strings.TrimSpace(text))
	if err != nil || (address.Scheme != "http" && address.Scheme != "https") || address.Host == "" {
		return nil, farm.Invalid(name, "%q is not an http or https URL", text)
	}
	address.Path = strings.TrimRight(address.Path, "/")
	address.RawQuery, address.Fragment = "", ""
	return address, nil
}

// transport speaks HTTP/1.1 only: parallel connections have a window each, one HTTP/2 connection
// would make all parts share a single one.
func transport(o Options) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:       o.TLS,
		TLSHandshakeTimeout:   10 * time.Second,
		Protocols:             &protocols,
		DisableCompression:    true, // layer files are compressed at rest
		MaxIdleConnsPerHost:   8,
		IdleConnTimeout:       60 * time.Second,
		ExpectContinueTimeout: time.Second,
		ReadBufferSize:        256 << 10,
		WriteBufferSize:       256 << 10,
	}
	t.DialTLSContext = o.DialTLS
	if o.Dial != nil {
		t.Proxy, t.DialContext = nil, o.Dial
	}
	return t
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// apiCall is one control request and the envelope of its response, decoded into out unless that is nil.
type apiCall struct {
	method  string
	path    string
	query   url.Values
	request any
	result  any
	// idempotent marks calls that are safe to send twice: only such calls are retried.
	idempotent bool
	timeout    time.Duration // 0 means controlTimeout
	toMirror   bool          // the mirror is asked instead of the registry
}

func (c *Client) doCall(ctx context.Context, k apiCall) error {
	if k.timeout == 0 {
		k.timeout = controlTimeout
	}
	if !k.idempotent {
		return c.callOnce(ctx, k)
	}
	return c.retry(ctx, k.method+" "+k.path, func() error { return c.callOnce(ctx, k) })
}

func (c *Client) callOnce(ctx context.Context, k apiCall) error {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	var body io.Reader
	if k.request != nil {
		raw, err := json.Marshal(k.request)
		if err != nil {
			return fmt.Errorf("encode %s: %w", k.path, err)
		}
		body = strings.NewReader(string(raw))
	}
	req, err := c.newRequest(ctx, k.method, c.callURL(k), body)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.send(req)
	if err != nil {
		return unreachableError(err)
	}
	defer resp.Body.Close()
	return decodeEnvelope(resp, k.result)
}

// responseError reads the envelope of a response with an unexpected status.
func responseError(resp *http.Response) error {
	if err := decodeEnvelope(resp, nil); err != nil {
		return err
	}
	return fmt.Errorf("the registry responded %s: %w", resp.Status, errTransient)
}

func (c *Client) buildURL(path string, query url.Values) string { return below(c.base, path, query) }

func (c *Client) callURL(k apiCall) string {
	if k.toMirror {
		return below(c.mirror, k.path, k.query)
	}
	return c.buildURL(k.path, k.query)
}

// below returns the URL of a path at an address.
func below(address *url.URL, path string, query url.Values) string {
	u := *address
	u.Path += path
	u.RawQuery = query.Encode()
	return u.String()
}

func (c *Client) newRequest(ctx context.Context, method, address string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, fmt.Errorf("request to the registry: %w", err)
	}
	if !c.isRegistryRequest(req) {
		return req, nil
	}
	req.Header.Set(api.TransferHeader, strconv.Itoa(api.TransferProtocol))
	if c.authorize != nil {
		if err := c.authorize(req); err != nil {
			return nil, fmt.Errorf("get credentials for the registry: %w", err)
		}
	}
	return req, nil
}

// isRegistryRequest reports whether a request is for the registry itself or its mirror, which get the credentials.
func (c *Client) isRegistryRequest(req *http.Request) bool {
	isFor := func(address *url.URL) bool {
		return address != nil && req.URL.Host == address.Host && req.URL.Scheme == address.Scheme
	}
	return isFor(c.base) || isFor(c.mirror)
}

// isRegistryURL reports whether the URL of a layer is one of the registry itself.
func (c *Client) isRegistryURL(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (!u.IsAbs() || u.Host == c.base.Host && u.Scheme == c.base.Scheme)
}

// maxRedirects is the maximum number of consecutive redirects.
const maxRedirects = 10

// checkRedirect removes credentials from a redirected request, unless it goes to the registry.
func (c *Client) checkRedirect(next *http.Request, before []*http.Request) error {
	if len(before) >= maxRedirects {
		return errors.New("too many redirects by the registry")
	}
	if !c.isRegistryRequest(next) {
		next.Header.Del("Authorization")
	}
	return nil
}

// send sends a request, and repeats it once if its credentials are stale. A body that cannot be sent again is
// left to another attempt.
func (c *Client) send(req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || c.renewCredentials == nil ||
		!c.isRegistryRequest(resp.Request) ||
		!c.renewCredentials(req) {
		return resp, err
	}
	_ = resp.Body.Close()
	again := req.Clone(req.Context())
	switch {
	case req.GetBody != nil:
		if again.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	case req.Body != nil:
		return nil, fmt.Errorf("the credential for the registry expired: %w", errTransient)
	}
	if err := c.authorize(again); err != nil {
		return nil, fmt.Errorf("get credentials for the registry: %w", err)
	}
	return c.http.Do(again)
}

func unreachableError(err error) error {
	return farm.Unavailable(err, "The registry cannot be reached")
}

// decodeEnvelope reads an envelope. Status FAIL becomes a farm.Error with the registry's message.
func decodeEnvelope(resp *http.Response, out any) error {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes+1))
	if err != nil {
		return unreachableError(err)
	}
	if len(raw) > maxResponseBytes {
		return farm.Errorf(farm.CodeTooLarge, "The response of the registry has more than %d bytes", maxResponseBytes)
	}
	var e api.Envelope[json.RawMessage]
	if err := json.Unmarshal(raw, &e); err != nil {
		return &farm.Error{
			Code: codeOf(resp.StatusCode, ""), Message: "The registry answered " + resp.Status + " without an envelope",
			Err: err,
		}
	}
	if e.Status != api.StatusOK || resp.StatusCode != http.StatusOK {
		return farm.Errorf(codeOf(resp.StatusCode, e.Message), "%s", e.Message)
	}
	if out == nil || len(e.Body) == 0 {
		return nil
	}
	if err := json.Unmarshal(e.Body, out); err != nil {
		return fmt.Errorf("parse response of the registry: %w", err)
	}
	return nil
}

// statusCodes maps HTTP statuses of the registry back to codes; 200 and 400 also need the message.
var statusCodes = map[int]farm.Code{
	http.StatusUnauthorized:          farm.CodeUnauthenticated,
	http.StatusForbidden:             farm.CodeForbidden,
	http.StatusNotFound:              farm.CodeNotFound,
	http.StatusConflict:              farm.CodeConflict,
	http.StatusPreconditionFailed:    farm.CodeNoParent,
	http.StatusRequestEntityTooLarge: farm.CodeTooLarge,
	http.StatusTooManyRequests:       farm.CodeBusy,
	http.StatusBadGateway:            farm.CodeUnavailable,
	http.StatusServiceUnavailable:    farm.CodeUnavailable,
	http.StatusGatewayTimeout:        farm.CodeUnavailable,
}

func codeOf(status int, message string) farm.Code {
	switch {
	case status == http.StatusOK && message == farm.NotFoundMessage:
		return farm.CodeNotFound
	case status == http.StatusOK:
		return farm.CodeRefused
	case status == http.StatusBadRequest && strings.HasPrefix(message, "Did not find any versions"):
		return farm.CodeNoVersion
	case status == http.StatusBadRequest:
		return farm.CodeInvalid
	}
	if code, ok := statusCodes[status]; ok {
		return code
	}
	return farm.CodeInternal
}
