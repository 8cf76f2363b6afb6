// Package rest implements the HTTP layer of every service: it decodes requests leniently, writes every response
// in the envelope, maps error codes to HTTP status codes, and contains the middleware. The routes of each
// service are in a separate sub-package.
//
// It contains no use cases: a handler decodes, calls one method and returns a value or an error.
//
// Invariant: exactly one function writes responses (respond), so that all routes share one response shape and
// one set of codes.
package rest
