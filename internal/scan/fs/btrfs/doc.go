// Package btrfs reads Btrfs file systems on one device in place, as io/fs. Source of the format: "Btrfs On-disk
// Format" of the Btrfs developers (btrfs.readthedocs.io), and the kernel's fs/btrfs.
//
// It changes nothing, replays no log tree, knows neither owners nor extended attributes, combines no devices, and
// never asks the kernel to mount anything. All checksums are verified: those of metadata always, those of content where
// the file system has them.
//
// The tree is the one that the kernel mounts without options: that of the default subvolume. Subvolumes and snapshots
// below it are directories. What is outside the default subvolume is a separate tree.
//
// Invariant: images are untrusted. Whatever its bytes are, no path leads out of its tree, every walk over it ends, and
// memory use does not depend on sizes that it claims.
package btrfs

import (
	"encoding/binary"
	"errors"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

var (
	// ErrDamaged is in the chain of every error about contradictory bytes.
	ErrDamaged = inodefs.ErrDamaged
	// ErrNotBtrfs reports that there is not a Btrfs file system.
	ErrNotBtrfs = errors.New("not a Btrfs file system")
	// ErrUnsupported is in the chain of errors about features that this package does not read.
	ErrUnsupported = errors.New("unsupported Btrfs feature")
)

// damaged returns an error about damage.
func damaged(format string, args ...any) error { return inodefs.Damaged(format, args...) }

// le is the order of all numbers.
var le = binary.LittleEndian
