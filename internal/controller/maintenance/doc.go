// Package maintenance has the maintenance mode: while it is on, nothing is removed or terminated
// automatically.
//
// It excludes what is paused: the owners of removals and timeouts ask it.
//
// Invariant: the mode is one record, so that every replica, and a restarted one, has the same.
package maintenance
