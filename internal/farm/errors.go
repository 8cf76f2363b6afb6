package farm

import (
	"errors"
	"fmt"
	"time"
)

// Code is the kind of failure of an error. The set is closed: the REST layer maps every code to one
// HTTP status, and an error without a code is internal.
type Code string

// The codes.
const (
	// CodeInvalid is input of the wrong type, range or combination.
	CodeInvalid Code = "invalid"
	// CodeNotFound is a lookup of something that does not exist.
	CodeNotFound Code = "not-found"
	// CodeRefused is a logical refusal: the input is well formed, the answer is no.
	CodeRefused Code = "refused"
	// CodeNoVersion is a tag or version that a registry lookup did not find.
	CodeNoVersion Code = "no-version"
	// CodeUnauthenticated is a missing, wrong or expired credential.
	CodeUnauthenticated Code = "unauthenticated"
	// CodeForbidden is a credential without the needed permission.
	CodeForbidden Code = "forbidden"
	// CodeConflict is a lost race: another writer was first.
	CodeConflict Code = "conflict"
	// CodeNoParent is a layer whose parent layer is not in the registry.
	CodeNoParent Code = "no-parent"
	// CodeTooLarge is a body or value over its limit.
	CodeTooLarge Code = "too-large"
	// CodeTooMany is a caller who fails too often; trying again later may succeed.
	CodeTooMany Code = "too-many"
	// CodeBusy is a queue or limit that is full; trying again may succeed.
	CodeBusy Code = "busy"
	// CodeUnavailable is a part that cannot be reached now.
	CodeUnavailable Code = "unavailable"
	// CodeInternal is everything else.
	CodeInternal Code = "internal"
)

// NotFoundMessage is the exact text that clients compare for a failed lookup.
const NotFoundMessage = "Not found"

// Error is a failure that may be shown to a client: Message is a whole sentence
// (or an exact text of the contract), Field names the offending parameter when
// there is one, Err is the cause for the log and is never shown. RetryAfter is when a
// client that met a limit should try again; 0 leaves that to the REST layer.
type Error struct {
	Code       Code
	Field      string
	Message    string
	Err        error
	RetryAfter time.Duration
}

// Error returns the message and, when there is one, the cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error with a formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid makes a CodeInvalid error that names the field it is about.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Field: field, Message: field + ": " + fmt.Sprintf(format, args...)}
}

// Refused returns a CodeRefused error; the message is a sentence that states what is refused and
// why.
func Refused(format string, args ...any) *Error { return Errorf(CodeRefused, format, args...) }

// NotFound makes the error of a failed lookup with its exact text.
func NotFound() *Error { return &Error{Code: CodeNotFound, Message: NotFoundMessage} }

// Unavailable makes a CodeUnavailable error around its cause.
func Unavailable(err error, format string, args ...any) *Error {
	return &Error{Code: CodeUnavailable, Message: fmt.Sprintf(format, args...), Err: err}
}

// CodeOf returns the code of the first farm error in err's chain, or CodeInternal. For a nil error
// it returns "".
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}
