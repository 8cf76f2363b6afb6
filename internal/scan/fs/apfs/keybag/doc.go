// Package keybag reads the keybags of APFS: it finds the key of an encrypted volume with a password or the recovery
// key. Sources of the format: Apple's "Apple File System Reference", and for the key records, which it does not
// describe, the observations of the libfsapfs and apfs-fuse projects.
//
// It reads no disk: the caller gets the blocks. Keys that only the hardware of a Mac has are not found, nor are keys
// of single files, institutional recovery keys, and those of iCloud accounts.
//
// Invariant: keybags are untrusted. Whatever their bytes are, reading one ends, and deriving keys takes no more than a
// fixed number of iterations. Keys are in no error.
package keybag

import "errors"

var (
	// ErrDamaged is in the chain of every error about contradictory bytes.
	ErrDamaged = errors.New("the keybag is damaged")

	// ErrWrongKey is in the chain of the error when no key opens a record.
	ErrWrongKey = errors.New("the given key opens none of its key records")
)
