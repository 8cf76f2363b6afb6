// Package controllerrest is the controller's REST API and the server side of the node API: the table of routes,
// the decoding of their parameters and the form of their responses, including the quirks that existing clients
// rely on.
//
// It does not contain the use cases (internal/controller) and holds no state.
//
// Invariant: a parameter of the API is either carried out or refused by name; none is ever ignored.
package controllerrest
