// Package lockorder has the order of the controller's locks, and a mutex for each place in it.
//
// A mutex that is held while no other one is taken needs no place: it is a sync.Mutex. The package
// does not know what the locks guard; their owners say so.
//
// Invariant: a goroutine takes a lock only while every lock that it holds has an earlier place. A
// build with the race detector checks that and panics; other builds do not pay for it.
package lockorder
