// Package client speaks the HTTP API of a Buildyard cloud: Controller has a method for
// every route of the controller, Registry one for every route of the registry but the
// bulk wire of push and pull, which buildnode speaks.
//
// It is not a mirror of a cloud and caches nothing. It needs the standard library and
// the wire types of package api only, so that it can be built into any program. Methods
// take a context; besides that every try of a call has a time-out of its own
// (Options.Timeout), streams aside. What an answer may hold is bounded
// (Options.MaxAnswer).
//
// Errors are *Error and match one of the codes, such as ErrNotFound, with errors.Is.
//
// A call that failed without an answer, or because the service could not serve it just
// then, is tried again when that cannot do harm: when it changes nothing, when doing it
// twice is the same as once, when it has an IdempotencyKey, or when no connection came
// about.
//
// Invariant: a call is never made twice when its second time could mean something else.
package client
