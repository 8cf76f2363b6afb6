package client

import (
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
)

// A service does not report how long its sessions last. They are renewed after most of the default lifetime,
// and sooner where they were refused sooner.
const (
	sessionLife = 4 * time.Minute // the default lifetime is 5 min
	leastLife   = time.Second
)

// session is the session of an API key with one service.
type session struct {
	mu     sync.Mutex
	bearer redacted          // zero: none
	began  time.Time         // before its handshake
	life   time.Duration     // after which it is renewed
	flight *pendingHandshake // the running handshake; nil: none
}

// pendingHandshake is a handshake that one or several callers wait for.
type pendingHandshake struct {
	done   chan struct{} // closed when the fields below are set
	bearer redacted
	err    error
}

// value returns the Bearer value of a session that lasts. The first caller that needs a new session starts one
// handshake for all. The handshake continues if that caller stops waiting.
func (s *session) value(ctx context.Context, shake func(context.Context) (redacted, error)) (redacted, error) {
	s.mu.Lock()
	if s.bearer.text != nil {
		if time.Since(s.began) < s.life {
			defer s.mu.Unlock()
			return s.bearer, nil
		}
		s.bearer, s.life = redacted{}, min(s.life+s.life/4, sessionLife)
	}
	f := s.flight
	if f == nil {
		f = &pendingHandshake{done: make(chan struct{})}
		s.flight = f
		go s.runHandshake(context.WithoutCancel(ctx), f, shake)
	}
	s.mu.Unlock()
	select {
	case <-f.done:
		return f.bearer, f.err
	case <-ctx.Done():
		return redacted{}, context.Cause(ctx)
	}
}

// runHandshake makes a handshake and stores the session.
func (s *session) runHandshake(
	ctx context.Context, f *pendingHandshake, shake func(context.Context) (redacted, error),
) {
	began := time.Now()
	f.bearer, f.err = shake(ctx)
	s.mu.Lock()
	s.bearer, s.began, s.flight = f.bearer, began, nil
	s.mu.Unlock()
	close(f.done)
}

// refused drops a session that a service refused, unless that was done already, and derives a shorter lifetime
// from its age.
func (s *session) refused(value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bearer.text == nil || s.bearer.reveal() != value {
		return
	}
	s.bearer, s.life = redacted{}, max(leastLife, min(s.life, time.Since(s.began)/2))
}

// handshake opens sessions of a key with a service.
type handshake struct {
	key *APIKey
	to  Target
}

const (
	handshakeTimeout = 20 * time.Second
	maxTapAnswer     = 64 << 10 // bytes
)

// shake proves possession of the private key, and returns the Bearer value of a new session.
func (h handshake) shake(ctx context.Context) (redacted, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	sealed, err := h.post(ctx, api.PathHand, api.HandRequest{ID: h.key.id})
	if err != nil {
		return redacted{}, err
	}
	cipher, err := decode64(string(sealed))
	if err != nil {
		return redacted{}, h.fail(ErrForeign, api.PathHand,
			"the response of %s to a handshake is invalid: check that it is the address of a %s", h.to.Address,
			h.to.Kind)
	}
	secret, err := rsa.DecryptOAEP(sha256.New(), nil, h.key.private, cipher, nil)
	if err != nil {
		return redacted{}, h.fail(ErrUnauthenticated, api.PathHand,
			"the %s at %s does not accept the API key %q: it does not exist there, has expired or was deleted, "+
				"or the given private key is not that of the API key %q; check both, or create another key",
			h.to.Kind, h.to.Address, h.key.id, h.key.id)
	}
	raw, err := h.post(ctx, api.PathShake, api.ShakeRequest{ID: h.key.id, Secret: string(secret)})
	if err != nil {
		return redacted{}, err
	}
	var answer struct {
		Data json.RawMessage `json:"data"` // sent back as it came, including unknown fields
	}
	var data bytes.Buffer
	if json.Unmarshal(raw, &answer) != nil || !bytes.HasPrefix(answer.Data, []byte("{")) ||
		json.Compact(&data, answer.Data) != nil {
		return redacted{},
			h.fail(ErrForeign, api.PathShake, "the session of %s has an unknown form: update this program",
				h.to.Address)
	}
	return hide(base64.StdEncoding.EncodeToString(data.Bytes())), nil
}

// post makes one call of the handshake. Its errors contain neither body nor response, except the service's
// message.
func (h handshake) post(ctx context.Context, path string, body any) ([]byte, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("handshake: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.to.Address+path, bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("handshake: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.to.HTTP.Do(req)
	if err != nil {
		return nil, h.unreachable(path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxTapAnswer))
	switch {
	case err != nil:
		return nil, h.unreachable(path, err)
	case resp.StatusCode == http.StatusOK:
		return answer, nil
	}
	return nil, h.refusal(resp, path, answer)
}

// refusal returns the error for a service's refusal to open a session.
func (h handshake) refusal(resp *http.Response, path string, answer []byte) *Error {
	var envelope api.Envelope[json.RawMessage]
	foreign := json.Unmarshal(answer, &envelope) != nil || envelope.Status == ""
	code := codeOf(resp.StatusCode, "")
	var e *Error
	switch {
	case code == ErrUnauthenticated:
		e = h.fail(code, path,
			"the %s at %s does not accept the API key %q: it does not exist there, has expired, or was deleted or "+
				"created again; check the ID, or create another key", h.to.Kind, h.to.Address, h.key.id)
	case code == ErrUnsupported:
		e = h.fail(code, path,
			"the %s at %s does not support API keys: its version is older, or they are disabled there; "+
				"set SVC_ENABLE_API_KEYS=true there, or use another credential", h.to.Kind, h.to.Address)
	case foreign && code != ErrUnavailable:
		e = h.fail(ErrForeign, path, "%s answers, but not as a %s does (%s)", h.to.Address, h.to.Kind, resp.Status)
	case foreign || strings.TrimSpace(envelope.Message) == "":
		e = h.fail(code, path, "the %s at %s did not open a session (%s)", h.to.Kind, h.to.Address, resp.Status)
	default:
		e = h.fail(code, path, "the %s at %s did not open a session: %s", h.to.Kind, h.to.Address, envelope.Message)
	}
	e.Status, e.RequestID = resp.StatusCode, resp.Header.Get("X-Request-Id")
	return e
}

// fail returns the error of a handshake, before which the actual call was not sent.
func (h handshake) fail(code Code, path, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Method: http.MethodPost, Path: path, unsent: true}
}

func (h handshake) unreachable(path string, err error) *Error {
	err = bareURL(err)
	e := h.fail(ErrUnreachable, path, "the %s at %s cannot be reached: %v", h.to.Kind, h.to.Address, err)
	e.cause = err
	return e
}
