// Package api contains the wire types of Buildyard's HTTP APIs: the public ones of the controller and the
// registry, and the node API between controller and agents.
//
// It is not the domain (internal/farm) and has no behavior beyond JSON: the forms, names and omissions here are
// what existing clients read.
//
// Invariant: it imports only the standard library, so that a client can be built from this package alone.
package api
