// Package transfer is the client of the registry: it pushes and pulls versions of templates for the node agent
// and the node command line, and makes the registry's control calls for the controller.
//
// It is not a cache and knows nothing about hypervisors: a pull fills one directory that its caller chose, a
// push reads files that must not change while it runs.
//
// Invariant: no byte reaches a finished file before the frame it belongs to was verified against the digest
// that names the layer, and Pull does not return before every byte is on stable storage.
package transfer
