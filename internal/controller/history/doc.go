// Package history has what is kept of instances that are removed.
//
// It does not decide when an instance is removed.
//
// Invariant: an instance is in the history if and only if its record is removed: both are one
// transaction.
package history
