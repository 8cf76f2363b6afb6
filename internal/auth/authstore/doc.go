// Package authstore stores the data of internal/auth in tables of a store.Store, for the replicas
// of a controller, and for the registry that runs in one process with it: API keys, used nonces,
// grants and signing keys.
//
// It authorizes no caller, and it knows no route and no setting. Reads are from memory; the other
// replicas see a change a moment later, and the process that made it before the call returns.
//
// Invariant: a call that returns without an error has made its change durable for all replicas,
// once. A record that cannot be read is never treated as missing: it grants nothing, and it is not
// overwritten.
package authstore
