// Package authfile keeps what internal/auth needs in files, for a registry that runs alone:
// user keys, marks of used secrets, signing keys and grants.
//
// It is not for several processes: whoever opens a directory sees to it that nobody else
// does, as a registry does by the lock on its storage. The files are not to be edited.
//
// Invariant: a call that returns without an error has made its change durable, and a
// process that is killed at any step leaves files that hold all such changes and open
// again. What is damaged is refused with a sentence, never guessed at.
package authfile
