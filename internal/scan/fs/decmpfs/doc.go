// Package decmpfs reads the content of files that Apple's systems compress transparently, on APFS and HFS+: an
// attribute has a header, and the content itself or the resource fork has it in blocks that are compressed one by one.
// Source of the format: Apple's decmpfs.h in the kernel's source, and files that macOS wrote.
//
// It finds neither attributes nor forks: a file system passes it their bytes. It does not read content that is stored
// once for several files (kind 5).
//
// Invariant: files are untrusted. A block decompresses to exactly its length, and memory does not depend on sizes that
// a header claims beyond the table of a file's blocks, which its resource fork must have.
package decmpfs

import (
	"errors"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// Names of the attributes that a compressed file has.
const (
	Attribute    = "com.apple.decmpfs"
	ResourceFork = "com.apple.ResourceFork"
)

// FlagCompressed is in the st_flags of a compressed file.
const FlagCompressed = 0x20

var (
	// ErrDamaged is in the chain of every error about contradictory bytes.
	ErrDamaged = inodefs.ErrDamaged
	// ErrUnsupported is in the chain of the errors for kinds of compression that are not read.
	ErrUnsupported = errors.New("unsupported compression")

	errNegativeOffset = errors.New("negative file offset")
)

func damaged(format string, args ...any) error { return inodefs.Damaged(format, args...) }
