// Package hostrest is the REST API of the host scanner: its routes, its envelope, and its access control.
//
// It is not the scanner, and not an API for web pages: it refuses their browsers. It shares neither envelope
// nor guard with the controller's API, which has users.
//
// Invariant: a response with status OK is complete; one that fails while it is sent breaks the connection.
package hostrest
