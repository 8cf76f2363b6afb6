// Package authstore keeps what internal/auth needs in tables of a store.Store, for the
// replicas of a controller, and for the registry that runs in one process with it: user
// keys, marks of used secrets, grants and signing keys.
//
// It judges nobody, and it knows no route and no setting. Reads are from memory; what one
// replica changes the others see a moment later, and whoever made the change before the
// call returns.
//
// Invariant: a call that returns without an error has made its change durable for all
// replicas, once. A record that cannot be read is never taken for one that is not there:
// it opens nothing, and nothing is written over it.
package authstore
