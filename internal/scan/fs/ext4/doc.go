// Package ext4 reads the file systems ext2, ext3 and ext4 in place, as io/fs. Source of the format:
// the kernel's Documentation/filesystems/ext4.
//
// It changes nothing, replays no journal, knows neither owners nor extended attributes, and never
// asks the kernel to mount anything. Checksums are verified where the file system has those of
// metadata_csum.
//
// Invariant: images are untrusted. Whatever its bytes are, no path leads out of its tree, every
// walk over it ends, and memory use does not depend on sizes that it claims.
package ext4

import (
	"errors"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

var (
	// ErrDamaged is in the chain of every error about contradictory bytes.
	ErrDamaged = inodefs.ErrDamaged
	// ErrEncrypted is in the chain of every error about data that cannot be read without a key.
	ErrEncrypted = errors.New("the file or directory is encrypted")
	// ErrNotExt reports that there is not a file system of this kind.
	ErrNotExt = errors.New("not an ext2, ext3 or ext4 file system")
)

// damaged returns an error about damage.
func damaged(format string, args ...any) error { return inodefs.Damaged(format, args...) }
