// Package apfs reads Apple File System containers: their volumes and snapshots as
// file systems of io/fs, from any io.ReaderAt. Source of the format: Apple's "Apple
// File System Reference", and for what it leaves out or has wrong the observations of
// the linux-apfs project.
//
// It never writes, mounts nothing and decrypts nothing: an encrypted volume is named
// and refused. It does not check the hashes of sealed volumes, and reads neither fusion
// drives nor what is in other disk images on a volume.
//
// Invariant: a container comes from outside. Whatever its bytes say, reading it ends,
// keeps at most a few MiB of it in memory, and never reads outside of what was given.
package apfs

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrDamaged is wrapped by errors that say that a container contradicts itself.
var ErrDamaged = errors.New("the APFS container is damaged")

// ErrEncrypted is wrapped by errors that say that a volume is encrypted.
var ErrEncrypted = errors.New("the volume is encrypted")

// ErrUnsupported is wrapped by errors that name what this package does not read.
var ErrUnsupported = errors.New("this is not supported")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

var le = binary.LittleEndian
