// Package pools has the warm pools: their records, the leader's work that keeps standbys ready, and the choice of a
// standby for a start.
//
// A standby is an ordinary instance with a mark. A start claims one by the transaction that placement writes: the
// record of the standby becomes that of the requested instance. The package neither places nor writes claims.
//
// Invariant: a standby becomes the instance of at most one start, and never a standby again.
package pools
