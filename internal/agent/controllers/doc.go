// Package controllers has the addresses of the controllers of a node's cloud: those that its owner gave, and those that
// the cloud announces. It sends the node's requests to one of them, and to another one when that fails.
//
// It does not decide when a request is repeated: that is up to the callers.
//
// Invariant: the credential of the node is sent only to the controller that it joined or has used before, and to one
// that has proved with the key of the cloud to be part of it.
package controllers
