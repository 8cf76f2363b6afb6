package client

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
)

// Credentials authenticate the caller of requests: RootToken, Bearer and APIKey return some. One value may
// serve many clients and goroutines. A certificate is not among them: it belongs to the connection
// (Options.TLS).
type Credentials interface {
	// Authorize puts credentials on a request that is about to be sent to a service. It may call that service
	// within the request's context, and is called for every try.
	Authorize(r *http.Request, to Target) error
}

// Renewable is credentials that expire sooner than what they are made from.
type Renewable interface {
	Credentials
	// Renew is called when a service answered a request with 401. It reports whether a new call of Authorize
	// may succeed. A call is repeated once for it.
	Renew(r *http.Request, to Target) bool
}

// Target is the service that a request goes to, as credentials see it.
type Target struct {
	Kind    string       // controller or registry
	Address string       // with its path, without a slash at its end
	HTTP    *http.Client // the connections to it; it follows no redirects
}

// RootToken returns the credentials of the root user.
func RootToken(token string) Credentials { return rootToken{hide(token)} }

type rootToken struct{ redacted }

var _ Credentials = rootToken{}

// Authorize implements Credentials.
func (t rootToken) Authorize(r *http.Request, _ Target) error {
	r.SetBasicAuth("root", t.reveal())
	return nil
}

// Bearer returns existing credentials: a token (JWT) that an identity provider issued to a program, such as a
// CI job, or a session that another program has opened. They are not renewed.
func Bearer(value string) Credentials { return bearer{hide(strings.TrimSpace(value))} }

type bearer struct{ redacted }

var _ Credentials = bearer{}

// Authorize implements Credentials.
func (b bearer) Authorize(r *http.Request, _ Target) error {
	r.Header.Set(authorization, bearerScheme+b.reveal())
	return nil
}

const (
	authorization = "Authorization"
	bearerScheme  = "Bearer "
)

// redacted is a secret text: printing, encoding or logging it yields asterisks.
type redacted struct {
	text *string // a pointer, since fmt prints unexported fields without asking
}

func hide(text string) redacted { return redacted{&text} }

func (h redacted) reveal() string {
	if h.text == nil {
		return ""
	}
	return *h.text
}

// String returns asterisks in place of the text.
func (redacted) String() string { return "***" }

// Format prints asterisks in place of the text, whatever the verb.
func (h redacted) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, h.String()) }

// MarshalText encodes asterisks in place of the text.
func (h redacted) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// LogValue logs asterisks in place of the text.
func (h redacted) LogValue() slog.Value { return slog.StringValue(h.String()) }
