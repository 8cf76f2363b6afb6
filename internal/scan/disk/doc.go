// Package disk opens what a machine's disk is kept in - a raw file, a qcow2 image with
// those that it is on, a template of a registry - and finds the file systems on it.
//
// It mounts nothing, starts nothing and changes nothing, takes no lock of a registry, and
// does not read what is in a file system: fs/ext4 and fs/apfs do.
//
// Invariant: a disk comes from outside. No file but the one that the user named, those
// beside it that it is on, and the layers of a template are ever opened, and every part
// of a disk is either given as a volume or named as skipped.
package disk

import (
	"errors"
	"fmt"
)

// ErrDamaged is in the chain of every error about bytes that contradict each other.
var ErrDamaged = errors.New("the disk is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}
