// Package rest is the HTTP face of every service: it decodes requests liberally,
// writes every answer in the envelope, maps error codes to HTTP status codes, and
// holds the middleware. The routes of each service are in a sub-package of their own.
//
// It is not the place of use cases: a handler decodes, calls one method and
// returns a value or an error.
//
// Invariant: exactly one function writes answers (respond), so that no route can
// have a shape, a code or a text of its own.
package rest
