package store

import (
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// The closed set of failures that a caller has to distinguish, each with the code that a client
// sees. Only ErrUnknownOutcome leaves open whether something was written.
var (
	// ErrConflict: a condition did not hold, nothing was written. Always a *ConflictError that names the records.
	ErrConflict error = &farm.Error{Code: farm.CodeConflict, Message: "Another change of the same record was first"}
	// ErrFenced: the lease behind a fenced commit is no longer held, nothing was written. A retry
	// is useless.
	ErrFenced error = &farm.Error{
		Code: farm.CodeUnavailable, Message: "This replica lost its lease; nothing was changed",
	}
	// ErrUnknownOutcome: the change may or may not be in the store, now or a little later.
	ErrUnknownOutcome error = &farm.Error{
		Code:    farm.CodeUnavailable,
		Message: "The store did not answer in time; look whether the change happened before trying again",
	}
	// ErrUnavailable: the backend cannot be reached or refuses, nothing was written.
	ErrUnavailable error = &farm.Error{
		Code: farm.CodeUnavailable, Message: "The store is unavailable; nothing was changed",
	}
	// ErrBusy: the write queue is full, nothing was written.
	ErrBusy error = &farm.Error{Code: farm.CodeUnavailable, Message: "Too many writes are waiting; try again"}
	// ErrCompacted: the requested revision is gone from the backend's history; list again.
	ErrCompacted error = &farm.Error{Code: farm.CodeInternal, Message: "The revision was compacted"}
	// ErrClosed: the store was closed, nothing was written.
	ErrClosed error = &farm.Error{Code: farm.CodeUnavailable, Message: "The store is closed; nothing was changed"}
	// ErrInvalid: the request is invalid for every backend (too large, an empty id, one key twice).
	ErrInvalid error = &farm.Error{Code: farm.CodeInvalid, Message: "The store cannot take this"}
	// ErrNewerSchema: the records have a schema that this program does not support, in general that of a newer one.
	ErrNewerSchema error = &farm.Error{Code: farm.CodeUnavailable, Message: "The records have another schema"}
	// ErrClosedForTransfer: the records are being copied from or into the store, or were moved to another one.
	ErrClosedForTransfer error = &farm.Error{Code: farm.CodeUnavailable, Message: "The store is closed"}
)

// ConflictError is the definite loss of a compare-and-swap.
type ConflictError struct {
	// Keys whose condition failed, never empty: <kind>/<id> from a Store, whole keys from a Backend.
	Keys []string
}

// Error returns a text with the keys that lost.
func (e *ConflictError) Error() string {
	return ErrConflict.Error() + " on " + strings.Join(e.Keys, ", ")
}

// Unwrap makes errors.Is(err, ErrConflict) true, and with that sets the code of the error.
func (e *ConflictError) Unwrap() error { return ErrConflict }
