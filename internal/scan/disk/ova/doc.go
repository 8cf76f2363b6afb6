// Package ova finds the disks in a virtual appliance: a tar archive that begins with a description in the Open
// Virtualization Format. Sources of the format: DMTF's DSP0243, and what VirtualBox and ovftool write.
//
// It reads no disk and unpacks nothing: files are read where they are in the archive. Checksums of the manifest and
// signatures are not verified.
//
// Invariant: archives are untrusted. Whatever their bytes are, reading one ends, and every disk that the description
// names is returned, with the reason if it is not readable.
package ova

import "io"

const (
	blockBytes          = 512
	maxFiles            = 4096
	maxDescriptionBytes = 4 << 20
	maxDisks            = 256
)

// Signature of a tar archive: its place and text.
const (
	magicAt = 257
	magic   = "ustar"
)

// Disk is a disk that the description names.
type Disk struct {
	Name   string            // of its file
	File   *io.SectionReader // nil: it cannot be read
	Reason string            // why it cannot be read
}
