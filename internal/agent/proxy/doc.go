// Package proxy passes requests of a node's owner on to the registry of the node's cloud, with
// the credentials of the node: the local registry proxy.
//
// It listens on a socket of the file system, since guests and other users of the machine reach
// ports. It judges nothing: the registry does, and lets nodes do what nodes may.
//
// Invariant: a request goes to the registry that the controller names, or nowhere, and what its
// caller says of who they are goes nowhere.
package proxy
