// Package xfs reads XFS file systems of the versions 4 and 5 in place, as io/fs. Source of the format:
// "XFS Algorithms & Data Structures" of the XFS developers, and the kernel's fs/xfs/libxfs.
//
// It changes nothing, replays no log, reads no realtime device, knows neither owners nor extended
// attributes, and never asks the kernel to mount anything. Checksums are verified where the file system
// has them (version 5). Directories are read as lists, without their indexes, and names are compared
// exactly, also where the file system ignores the case of letters.
//
// Invariant: images are untrusted. Whatever its bytes are, no path leads out of its tree, every
// walk over it ends, and memory use does not depend on sizes that it claims.
package xfs

import (
	"encoding/binary"
	"errors"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

var (
	// ErrDamaged is in the chain of every error about contradictory bytes.
	ErrDamaged = inodefs.ErrDamaged
	// ErrNotXFS reports that there is not an XFS file system.
	ErrNotXFS = errors.New("not an XFS file system")
	// ErrUnsupported is in the chain of errors about features that this package does not read.
	ErrUnsupported = errors.New("unsupported XFS feature")
	// ErrRealtime is in the chain of errors about files whose content is on the realtime device.
	ErrRealtime = errors.New("the content of the file is on a realtime device, which is not read")
)

// damaged returns an error about damage.
func damaged(format string, args ...any) error { return inodefs.Damaged(format, args...) }

// be is the order of all numbers but checksums.
var be = binary.BigEndian
