// Package api holds the wire types of Buildyard's HTTP APIs: the controller's and
// the registry's public ones and the node link between controller and agents.
//
// It is not the domain (internal/farm) and has no behavior beyond JSON: the
// shapes, names and omissions here are what existing clients read.
//
// Invariant: it imports the standard library only, so that a client can be built
// from this package alone.
package api
