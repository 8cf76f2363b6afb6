// Package controllerrest is the controller's REST API and the server side of the
// node link: the table of routes, the decoding of their parameters and the shapes
// of their answers, with all the quirks that existing clients rely on.
//
// It is not the use cases (internal/controller) and holds no state.
//
// Invariant: a parameter of the API is either carried out or refused by name; none
// is ever ignored.
package controllerrest
