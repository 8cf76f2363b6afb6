// Package proxy forwards requests of a node's owner to the registry of the node's cloud, with the
// credentials of the node: the local registry proxy.
//
// It listens on a Unix socket, since guests and other users of the machine can reach ports. It
// authorizes nothing: the registry does, and lets nodes do what nodes may.
//
// Invariant: a request goes to the registry that the controller names, or nowhere, and credentials
// of its caller are never forwarded.
package proxy
