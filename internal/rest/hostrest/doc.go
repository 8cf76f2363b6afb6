// Package hostrest is the REST API of the host scanner: its routes, its envelope, and who may
// ask.
//
// It is not the scanner, and not an API for pages of the web: a browser that shows one is
// refused. It shares no envelope and no guard with the controller's API, which knows users.
//
// Invariant: an answer that says OK is whole; one that fails on its way breaks off.
package hostrest
