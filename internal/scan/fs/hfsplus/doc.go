// Package hfsplus reads HFS+ and HFSX file systems in place, as io/fs, also within a wrapper of HFS. Source of the
// format: Apple's Technical Note TN1150, and hfs_format.h of Apple's kernel for what is newer.
//
// It changes nothing, replays no journal, and never asks the kernel to mount anything. It knows neither owners nor
// access control lists, and no resource forks but those of compressed files, whose content it decompresses. Names are
// those on the disk in UTF-8, usually decomposed, with a colon where the disk has a slash, and are compared exactly,
// also where the file system ignores the case of letters. HFS without the plus is not read.
//
// Invariant: images are untrusted. Whatever its bytes are, no path leads out of its tree, every
// walk over it ends, and memory use does not depend on sizes that it claims.
package hfsplus

import (
	"encoding/binary"
	"errors"

	"github.com/buildyard/buildyard/internal/scan/fs/decmpfs"
	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

var (
	// ErrDamaged is in the chain of every error about contradictory bytes.
	ErrDamaged = inodefs.ErrDamaged
	// ErrNotHFSPlus reports that there is not an HFS+ file system.
	ErrNotHFSPlus = errors.New("not an HFS+ file system")
	// ErrUnsupported is in the chain of the errors for files whose compression is not read.
	ErrUnsupported = decmpfs.ErrUnsupported
)

// damaged returns an error about damage.
func damaged(format string, args ...any) error { return inodefs.Damaged(format, args...) }

// be is the order of all numbers but those of compression and of the journal.
var be = binary.BigEndian
