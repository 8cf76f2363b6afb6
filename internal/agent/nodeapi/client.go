// Package nodeapi is the agent's side of the node link: the five calls of api/link.go over plain
// HTTP/1.1.
//
// It keeps no state between calls and does not retry: the agent decides when to call again. It
// never logs a body, since orders contain scripts.
//
// Invariant: every error has a code of package farm, so that a caller can distinguish a node that
// its controller does not know (CodeUnauthenticated) and a second agent (CodeConflict) from an
// unavailable controller (CodeUnavailable). The latter also stands for a 401 that is not from the
// controller but, for example, from a proxy.
package nodeapi

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
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	callTimeout = 15 * time.Second
	maxAnswer   = 256 << 20 // bytes; orders contain scripts
	maxMessage  = 4 << 10   // bytes of a controller's message that are kept
)

// Client calls one controller. It may be used from many goroutines.
type Client struct {
	base       *url.URL
	http       *http.Client
	credential string // "" before joining
	authorize  func(*http.Request) error
	now        func() time.Time // sent with a request; nil: it has no time
}

// New returns a client for a controller at address. credential is from the response to a join. It
// does not connect.
func New(address string, transport http.RoundTripper, credential string) (*Client, error) {
	base, err := url.Parse(strings.TrimSpace(address))
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, farm.Invalid("controller", "%q is not an http or https URL%s", address, suggestAddress(address))
	}
	base.Path = strings.TrimRight(base.Path, "/")
	base.RawQuery, base.Fragment = "", ""
	return &Client{base: base, http: &http.Client{Transport: transport}, credential: credential}, nil
}

// suggestAddress suggests the intended address for one without a scheme.
func suggestAddress(address string) string {
	bare := strings.TrimSpace(address)
	if bare == "" || strings.Contains(bare, "://") {
		return ""
	}
	if base, err := url.Parse("http://" + bare); err != nil || base.Host == "" {
		return ""
	}
	return "; did you mean http://" + bare + " ?"
}

// NewTransport returns the transport of agents: HTTP/1.1 with keep-alive, since a long poll must not
// delay a report. agents is the number of agents that share it.
func NewTransport(config *tls.Config, agents int) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:     config,
		TLSHandshakeTimeout: 10 * time.Second,
		Protocols:           &protocols,
		MaxIdleConnsPerHost: 2 * agents,
		IdleConnTimeout:     60 * time.Second,
	}
}

// WithAuthorization returns a client that authenticates with other credentials than the node's: authorize adds
// them to a request.
func (c *Client) WithAuthorization(authorize func(*http.Request) error) *Client {
	other := *c
	other.authorize = authorize
	return &other
}

// joinErrors explains the responses to a join that was sent to the wrong address or with the wrong
// credentials.
var joinErrors = map[farm.Code]string{
	farm.CodeUnauthenticated: `The controller does not accept the token; "buildyard node token" prints the right one`,
	farm.CodeNotFound: "No controller at this address; check the address and the port (a registry has another " +
		"one)",
}

// The messages for a join without a token that the controller rejects.
const (
	unknownKeyText = "The controller does not accept this API key, or does not support API keys; check the key, or " +
		"join with the join token (--token-file)"
	missingTokenText = `--token-file or --token is required, or an API key (--api-key-id and --api-key-file): ` +
		`the controller refuses anonymous joins; "buildyard node token" prints the token on the controller's machine`
)

// Join registers a node and returns its identity. The node's credential is only in the request
// body: the header is for the credential that authorizes the join, and would hide a certificate.
func (c *Client) Join(ctx context.Context, in api.JoinRequest) (api.JoinAnswer, error) {
	asker := *c
	asker.credential = ""
	out, err := post[api.JoinAnswer](ctx, &asker, api.PathJoin, callTimeout, in)
	code := farm.CodeOf(err)
	text := joinErrors[code]
	switch {
	case err == nil, text == "":
		return out, err
	case code == farm.CodeUnauthenticated && in.Token == "" && c.authorize != nil:
		if e, ok := errors.AsType[*farm.Error](err); ok && e.Message != authenticationRequired {
			return out, err // from the handshake, which is more precise
		}
		text = unknownKeyText
	case code == farm.CodeUnauthenticated && in.Token == "":
		text = missingTokenText
	}
	return out, farm.Errorf(code, "%s", text)
}

// ProveCloud asks the controller to prove that it belongs to the cloud of the node. It does not send the node's
// credential.
func (c *Client) ProveCloud(ctx context.Context, in api.CloudProofRequest) (api.CloudProof, error) {
	asker := *c
	asker.credential, asker.authorize = "", nil
	return post[api.CloudProof](ctx, &asker, api.PathCloudProof, callTimeout, in)
}

// RegistryToken requests the node's registry token for a purpose; the zero value is for all orders
// of the node.
func (c *Client) RegistryToken(
	ctx context.Context, nodeID string, purpose api.TokenPurpose,
) (api.RegistryTokenResponse, error) {
	in := api.RegistryTokenRequest{Protocol: api.LinkProtocol, NodeID: nodeID}
	if purpose != (api.TokenPurpose{}) {
		in.Purpose = &purpose
	}
	return post[api.RegistryTokenResponse](ctx, c, api.PathPass, callTimeout, in)
}

// Peers requests the nodes from which this one may read a version.
func (c *Client) Peers(
	ctx context.Context, nodeID, contentID string, excluded []string,
) ([]api.Peer, error) {
	in := api.PeersRequest{
		Protocol: api.LinkProtocol, NodeID: nodeID, ContentID: contentID, Excluded: excluded,
	}
	out, err := post[api.PeersResponse](ctx, c, api.PathPeers, callTimeout, in)
	return out.Peers, err
}

// Poll polls for work and waits up to wait for it.
func (c *Client) Poll(ctx context.Context, wait time.Duration, in api.PollRequest) (api.PollAnswer, error) {
	path := api.PathPoll + "?wait=" + wait.Round(time.Millisecond).String()
	timed := *c
	timed.now = time.Now
	return post[api.PollAnswer](ctx, &timed, path, wait+callTimeout, in)
}

// Report delivers statuses.
func (c *Client) Report(ctx context.Context, in api.Report) (api.ReportAnswer, error) {
	return post[api.ReportAnswer](ctx, c, api.PathReport, callTimeout, in)
}

// disjoinRequest is the body of a disjoin.
type disjoinRequest struct {
	Protocol int    `json:"protocol"`
	NodeID   string `json:"node_id"`
}

// Disjoin removes the node from its cloud.
func (c *Client) Disjoin(ctx context.Context, nodeID string) error {
	_, err := post[json.RawMessage](ctx, c, api.PathDisjoin, callTimeout, disjoinRequest{api.LinkProtocol, nodeID})
	return err
}

func post[T any](ctx context.Context, c *Client, path string, limit time.Duration, in any) (T, error) {
	var out T
	body, err := json.Marshal(in)
	if err != nil {
		return out, fmt.Errorf("encode request to the controller: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.String()+path, bytes.NewReader(body))
	if err != nil {
		return out, fmt.Errorf("call controller: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.now != nil {
		req.Header.Set(api.HeaderNodeTime, strconv.FormatInt(c.now().UnixMilli(), 10))
	}
	if c.authorize != nil {
		if err := c.authorize(req); err != nil {
			return out, err
		}
	} else if c.credential != "" {
		req.Header.Set("Authorization", "Bearer "+c.credential)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return out, unreachable(err, c.base)
	}
	defer resp.Body.Close()
	return decode[T](resp)
}

// IsNotSent reports whether a call failed since there was no connection to the controller: it was not carried out.
func IsNotSent(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial"
}

// unreachable returns the error of a request that got no response.
func unreachable(err error, base *url.URL) error {
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		return farm.Unavailable(err, "The certificate of the controller at %s is not trusted; "+
			"set the file with its CA: buildnode join URL --ca-cert FILE", base.Redacted())
	}
	return farm.Unavailable(err, "The controller at %s cannot be reached", base.Redacted())
}

// decode reads an envelope. A FAIL becomes a farm.Error with the controller's message.
func decode[T any](resp *http.Response) (T, error) {
	var e api.Envelope[T]
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return e.Body, farm.Unavailable(err, "The response of the controller was interrupted")
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		var none T
		code := errorCode(resp.StatusCode)
		if code == farm.CodeUnauthenticated || code == farm.CodeForbidden {
			code = farm.CodeUnavailable // from a server before the controller, which knows no nodes
		}
		return none, &farm.Error{
			Code: code, Err: err,
			Message: "The controller answered " + resp.Status + " without an envelope; is the address right?",
		}
	}
	if e.Status != api.StatusOK || resp.StatusCode != http.StatusOK {
		var none T
		return none, farm.Errorf(errorCode(resp.StatusCode), "%.*s", maxMessage, e.Message)
	}
	return e.Body, nil
}

// authenticationRequired is the controllers' message to unauthenticated callers.
const authenticationRequired = "Authentication Required"

// errorCodes maps HTTP statuses of the node link back to codes.
var errorCodes = map[int]farm.Code{
	http.StatusOK:                    farm.CodeRefused, // a FAIL in a regular response
	http.StatusBadRequest:            farm.CodeInvalid,
	http.StatusUnauthorized:          farm.CodeUnauthenticated,
	http.StatusForbidden:             farm.CodeForbidden,
	http.StatusNotFound:              farm.CodeNotFound,
	http.StatusConflict:              farm.CodeConflict,
	http.StatusRequestEntityTooLarge: farm.CodeTooLarge,
	http.StatusTooManyRequests:       farm.CodeBusy,
	http.StatusBadGateway:            farm.CodeUnavailable,
	http.StatusServiceUnavailable:    farm.CodeUnavailable,
	http.StatusGatewayTimeout:        farm.CodeUnavailable,
}

func errorCode(status int) farm.Code {
	if code, ok := errorCodes[status]; ok {
		return code
	}
	return farm.CodeInternal
}
