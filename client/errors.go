package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/buildyard/buildyard/api"
)

// Code is the kind of a failure, and also an error: errors.Is(err, client.ErrNotFound).
type Code string

// The codes.
const (
	ErrNotFound        Code = "not found"        // no such instance, node, group, template, request or file
	ErrNoVersion       Code = "no such version"  // the template has no such tag or number
	ErrInvalid         Code = "invalid"          // a parameter is missing or out of its range
	ErrRefused         Code = "refused"          // the request cannot be carried out in the current state
	ErrUnauthenticated Code = "unauthenticated"  // no, wrong or expired credentials
	ErrForbidden       Code = "forbidden"        // the credentials lack a permission
	ErrUnsupported     Code = "unsupported"      // the service does not have the route
	ErrConflict        Code = "conflict"         // another request changed it concurrently
	ErrTooLarge        Code = "too large"        // the request, or an answer beyond Options.MaxAnswer
	ErrUnavailable     Code = "unavailable"      // the service cannot serve it now; a later call may succeed
	ErrInternal        Code = "internal error"   // the service failed; its log has the request id
	ErrUnreachable     Code = "unreachable"      // no connection, or no complete response in time
	ErrForeign         Code = "not this service" // the server is not a Buildyard service
)

func (c Code) Error() string { return string(c) }

// Error is a call that failed.
type Error struct {
	Code      Code
	Message   string // a sentence with the problem, and mostly the remedy
	Status    int    // HTTP status; 0 without a response
	RequestID string // names the call in the service's log; "" without an answer
	Method    string // HTTP method of the request
	Path      string // of the request

	cause  error
	unsent bool // it failed before it was sent
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the code, and the cause if the service was unreachable.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.cause}
}

// Cause returns why the service was unreachable; nil if it responded.
func (e *Error) Cause() error { return e.cause }

// OfHandshake reports whether a call failed because its credentials, an API key, yielded no session.
func (e *Error) OfHandshake() bool { return e.Path == api.PathHand || e.Path == api.PathShake }

// CodeOf returns the code of an error; "" if it is not from a call.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// Messages that are more specific than their HTTP status.
const (
	notFound     = "Not found"
	noTemplate   = "VM not in the registry"
	noTag        = "No such tag "
	noTagAtStore = "Did not find any versions with tag "
	underWay     = "A request with this Idempotency-Key is under way"
)

// codes maps HTTP statuses; 200 with status FAIL is a refusal for a reason of logic.
var codes = map[int]Code{
	http.StatusOK:                    ErrRefused,
	http.StatusBadRequest:            ErrInvalid,
	http.StatusUnauthorized:          ErrUnauthenticated,
	http.StatusForbidden:             ErrForbidden,
	http.StatusNotFound:              ErrUnsupported,
	http.StatusMethodNotAllowed:      ErrUnsupported,
	http.StatusConflict:              ErrConflict,
	http.StatusPreconditionFailed:    ErrConflict,
	http.StatusRequestEntityTooLarge: ErrTooLarge,
	http.StatusTooManyRequests:       ErrUnavailable,
	http.StatusBadGateway:            ErrUnavailable,
	http.StatusServiceUnavailable:    ErrUnavailable,
	http.StatusGatewayTimeout:        ErrUnavailable,
}

// codeOf returns the code of a response with status FAIL.
func codeOf(status int, message string) Code {
	switch {
	case message == notFound, message == noTemplate:
		return ErrNotFound
	case strings.HasPrefix(message, noTag), strings.HasPrefix(message, noTagAtStore):
		return ErrNoVersion
	case strings.HasPrefix(message, underWay):
		return ErrUnavailable
	}
	if code, ok := codes[status]; ok {
		return code
	}
	return ErrInternal
}

// failure returns the error of a response with status FAIL.
func failure(resp *http.Response, message string) *Error {
	e := answered(resp, codeOf(resp.StatusCode, message), message)
	if e.Message == "" {
		e.Message = fmt.Sprintf("HTTP %s, without a reason", resp.Status)
	}
	return e
}

func answered(resp *http.Response, code Code, message string) *Error {
	return &Error{
		Code: code, Message: message, Status: resp.StatusCode, RequestID: resp.Header.Get("X-Request-Id"),
		Method: resp.Request.Method, Path: resp.Request.URL.Path,
	}
}

// transient reports whether the same call may succeed a little later.
func transient(err error) bool {
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrUnavailable)
}

// ended returns the end of the caller's context rather than the network error that it caused: it has no code.
// Its text contains what delayed the response until then.
func ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil:
		return err
	case errors.Is(err, cause), errors.Is(err, ctx.Err()):
		return cause
	}
	return fmt.Errorf("%w: %v", cause, err) //nolint:errorlint // the call did not fail, its caller ended it
}
