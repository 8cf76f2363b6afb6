// Package ext4 reads the file systems ext2, ext3 and ext4 where they lie, as io/fs.
// Source of the format: the kernel's Documentation/filesystems/ext4.
//
// It changes nothing, replays no journal, knows neither owners nor extended
// attributes, and never asks the kernel to mount anything. Checksums are compared
// where the file system has those of metadata_csum.
//
// Invariant: an image comes from outside. Whatever its bytes say, no path leads out of
// its tree, every walk over it ends, and memory does not grow with what it claims.
package ext4

import (
	"errors"
	"fmt"
)

var (
	// ErrDamaged is in the chain of every error about bytes that contradict each other.
	ErrDamaged = errors.New("the file system is damaged")
	// ErrEncrypted is in the chain of every error about what cannot be read without a key.
	ErrEncrypted = errors.New("it is encrypted")
	// ErrNone says that there is no file system of this kind.
	ErrNone = errors.New("it is no file system of the ext family")
)

// damaged returns what is wrong.
func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}
