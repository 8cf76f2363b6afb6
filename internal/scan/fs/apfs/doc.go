// Package apfs reads Apple File System containers: their volumes and snapshots as file systems of
// io/fs, from any io.ReaderAt. Source of the format: Apple's "Apple File System Reference", and for
// its gaps and errors the observations of the linux-apfs project.
//
// It never writes and mounts nothing. An encrypted volume is read after Unlock with a password or recovery key, if
// its key is in the container: not that of a Mac whose hardware has it.
// It does not check the hashes of sealed volumes, and reads neither fusion drives nor disk images
// stored on a volume.
//
// Invariant: containers are untrusted. Whatever its bytes are, reading one ends, keeps at most a
// few MiB of it in memory, and never reads outside of the given range.
package apfs

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrDamaged is wrapped by the errors for a container that contradicts itself.
var ErrDamaged = errors.New("the APFS container is damaged")

// ErrEncrypted is wrapped by the errors for an encrypted volume.
var ErrEncrypted = errors.New("the APFS volume is encrypted")

// ErrUnsupported is wrapped by the errors for features that this package does not read.
var ErrUnsupported = errors.New("unsupported APFS feature")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

var le = binary.LittleEndian
