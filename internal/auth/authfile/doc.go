// Package authfile stores the data of internal/auth in files, for a registry that runs alone: API
// keys, used nonces, signing keys and grants.
//
// It is not for several processes: its caller must ensure that no other process opens the
// directory, as a registry does by the lock on its storage. The files are not to be edited.
//
// Invariant: a call that returns without an error has made its change durable, and a process that
// is killed at any step leaves files that contain all such changes and open again. Damaged files
// are rejected with a sentence, never guessed at.
package authfile
