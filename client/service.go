package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
)

// service is the common part of the clients of both services.
type service struct {
	kind  string // controller or registry
	base  *url.URL
	http  *http.Client
	creds Credentials

	timeout   time.Duration
	retries   int
	maxAnswer int64
	agent     string
}

func newService(kind, address string, o Options) (*service, error) {
	base, err := url.Parse(address)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("invalid address %q of the %s: want a URL such as http://build.example:8090", address,
			kind)
	}
	transport, err := o.transport()
	if err != nil {
		return nil, err
	}
	base.Path, base.RawPath = strings.TrimRight(base.Path, "/"), ""
	s := &service{
		kind: kind, base: base, creds: o.Credentials, timeout: o.Timeout, retries: o.Retries, maxAnswer: o.MaxAnswer,
		agent: o.UserAgent,
		// A redirect would make a GET of a POST, or send a body twice.
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
	}
	if s.timeout <= 0 {
		s.timeout = DefaultTimeout
	}
	if s.retries == 0 {
		s.retries = DefaultRetries
	}
	if s.maxAnswer <= 0 {
		s.maxAnswer = DefaultMaxAnswer
	}
	if s.agent == "" {
		s.agent = "buildyard-client"
	}
	return s, nil
}

// Address returns the address of the service, without the password in it.
func (s *service) Address() string { return s.base.Redacted() }

// CloseIdle closes the connections that are not in use.
func (s *service) CloseIdle() { s.http.CloseIdleConnections() }

// call is one call of the API.
type call struct {
	method string
	path   string
	raw    string // the path as it is sent, if a name in it has a slash; "": path
	query  url.Values
	body   any       // sent as JSON; nil: none
	stream io.Reader // sent unchanged, instead of body; the call is made once
	again  bool      // the call is idempotent
	key    string    // Idempotency-Key; "": none
}

func get(path string, query url.Values) call {
	return call{method: http.MethodGet, path: path, query: query, again: true}
}

// repeatable reports whether the call may be made again after the first one may have taken effect.
func (c call) repeatable() bool { return c.stream == nil && (c.again || c.key != "") }

// do makes a call, with retries where they are safe and useful, and decodes the body of the response into out,
// which may be nil.
func (s *service) do(ctx context.Context, c call, out any) error {
	var raw []byte
	if c.body != nil {
		var err error
		if raw, err = json.Marshal(c.body); err != nil {
			return fmt.Errorf("%s %s: %w", c.method, c.path, err)
		}
	}
	return s.repeat(ctx, c, func() error {
		try, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		resp, err := s.send(try, c, raw)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		return s.decode(ctx, resp, out)
	})
}

// send sends a request and returns the response, whatever its status. With stale credentials the request is
// sent once more: a refused request had no effect.
func (s *service) send(ctx context.Context, c call, raw []byte) (*http.Response, error) {
	resp, err := s.sendOnce(ctx, c, raw)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || !s.Renew(resp.Request) || !canResend(resp.Request) {
		return resp, err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxTapAnswer) // so that the connection can be used again
	_ = resp.Body.Close()
	return s.sendOnce(ctx, c, raw)
}

func (s *service) sendOnce(ctx context.Context, c call, raw []byte) (*http.Response, error) {
	body := c.stream
	if body == nil && raw != nil {
		body = bytes.NewReader(raw)
	}
	target := s.base.JoinPath()
	target.Path, target.RawPath, target.RawQuery = s.base.Path+c.path, "", c.query.Encode()
	if c.raw != "" {
		target.RawPath = s.base.EscapedPath() + c.raw
	}
	req, err := http.NewRequestWithContext(ctx, c.method, target.String(), body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", c.method, c.path, err)
	}
	req.Header.Set("User-Agent", s.agent)
	if raw != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Idempotency-Key", c.key)
	}
	if err := s.Authorize(req); err != nil {
		return nil, s.unauthorized(c, err)
	}
	if c.stream != nil {
		s.refuseUnsentStream(req)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, s.unreachable(c, err)
	}
	return resp, nil
}

// unreachable is the error of a call without a complete response.
func (s *service) unreachable(c call, err error) *Error {
	err = bareURL(err)
	return &Error{
		Code: ErrUnreachable, Method: c.method, Path: c.path, cause: err,
		Message: fmt.Sprintf("the %s at %s cannot be reached: %v", s.kind, s.Address(), err),
	}
}

// bareURL removes the address from an error, since the message around it contains it.
func bareURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// decode reads an envelope and its body into out, which may be nil.
func (s *service) decode(ctx context.Context, resp *http.Response, out any) error {
	limited := &io.LimitedReader{R: resp.Body, N: s.maxAnswer + 1}
	var text bytes.Buffer
	if resp.ContentLength > 0 {
		text.Grow(int(min(resp.ContentLength, maxInitialBuffer)) + bytes.MinRead)
	}
	_, err := text.ReadFrom(limited)
	keep, keeps := ctx.Value(bodyKey{}).(*json.RawMessage)
	if err == nil && limited.N > 0 && !keeps && decodeWhole(text.Bytes(), out) {
		return nil
	}
	var envelope api.Envelope[json.RawMessage]
	if err == nil {
		err = json.NewDecoder(&text).Decode(&envelope)
	}
	switch {
	case limited.N <= 0:
		return answered(resp, ErrTooLarge,
			fmt.Sprintf("the answer of the %s has more than %d bytes: ask for less", s.kind, s.maxAnswer))
	case err != nil && !isJSON(err):
		return s.unreachable(call{method: resp.Request.Method, path: resp.Request.URL.Path},
			fmt.Errorf("response interrupted: %w", err))
	case err != nil, envelope.Status == "":
		return s.unexpectedResponse(resp)
	case envelope.Status != api.StatusOK:
		return failure(resp, envelope.Message)
	}
	if keeps {
		*keep = envelope.Body
	}
	if out == nil || len(envelope.Body) == 0 {
		return nil
	}
	if err := json.Unmarshal(envelope.Body, out); err != nil {
		e := answered(resp, ErrForeign, fmt.Sprintf("the answer of the %s to %s %s has another form: %v", s.kind,
			resp.Request.Method, resp.Request.URL.Path, err))
		e.cause = err
		return e
	}
	return nil
}

const maxInitialBuffer = 1 << 20 // initial buffer limit for the announced length of a response

// decodeWhole decodes a successful response into out in one pass, which fits nearly all responses. Others are
// decoded in parts.
func decodeWhole(text []byte, out any) bool {
	if out == nil {
		return false
	}
	envelope := api.Envelope[any]{Body: out}
	return json.Unmarshal(text, &envelope) == nil && envelope.Status == api.StatusOK
}

// isJSON reports whether a response was complete and not valid JSON, rather than truncated.
func isJSON(err error) bool {
	var syntax *json.SyntaxError
	var form *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &form) || errors.Is(err, io.EOF)
}

func (s *service) unexpectedResponse(resp *http.Response) *Error {
	code := codes[resp.StatusCode]
	if code != ErrUnavailable { // a proxy's own unavailable is more precise
		code = ErrForeign
	}
	return answered(resp, code, fmt.Sprintf("%s answers, but not as a %s does (%s)", s.Address(), s.kind, resp.Status))
}

type bodyKey struct{}

// KeepBody returns a context whose calls store the body of their last response unchanged in raw, including
// fields that this package does not know. Concurrent calls need separate contexts.
func KeepBody(ctx context.Context, raw *json.RawMessage) context.Context {
	return context.WithValue(ctx, bodyKey{}, raw)
}
