// Package idempotency recognizes repeated requests by the idempotency key that their client has chosen.
//
// It does not carry out requests: a use case adds the changes of a Write to its own transaction.
//
// Invariant: of the requests with one key at most one is carried out, at whatever replicas they arrive.
package idempotency
