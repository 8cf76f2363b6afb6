// Package client is a client of the HTTP API of a Buildyard cloud. Controller has a method for every route of
// the controller, Registry one for every route of the registry except the bulk protocol of push and pull, which
// buildnode uses.
//
// It does not mirror a cloud and caches nothing. It imports the standard library, the wire types of package
// api and one library for WebSockets, and is a separate module, so that it can be built into any program.
// Methods take a context; in addition every try of a call has its own timeout (Options.Timeout), streams aside.
// The size of a response is bounded (Options.MaxAnswer).
//
// Errors are *Error and match one of the codes, such as ErrNotFound, with errors.Is.
//
// A call that failed without a response, or because the service was temporarily unable to serve it, is retried
// if that is safe: the call changes nothing, is idempotent, has an IdempotencyKey, or no connection was made.
//
// Invariant: a call is never made twice if the second call could have another effect.
package client
