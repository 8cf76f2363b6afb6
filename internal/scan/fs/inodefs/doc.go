// Package inodefs has what the readers of file systems with inodes share: paths with symbolic links, open directories,
// the mode of an inode, a cache of metadata, the owners of directory blocks, and the error for damage.
//
// It knows no format: a Volume reads inodes and directories.
//
// Invariant: no path leads out of the tree of a Volume, every lookup ends, and the memory of caches has fixed limits.
package inodefs

import (
	"errors"
	"fmt"
)

// ErrDamaged is in the chain of every error about contradictory bytes.
var ErrDamaged = errors.New("the file system is damaged")

// Damaged returns an error about contradictory bytes.
func Damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}
