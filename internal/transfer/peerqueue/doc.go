// Package peerqueue decides for the parts of a pull whether they come from another node, from the registry, or later.
//
// It fetches nothing, and knows of nodes and files only what its caller tells it.
//
// Invariant: each span is handed out to one connection at a time, until it was fetched once.
package peerqueue
