// Package vmdk reads disks in VMware's format: sparse and stream-optimized images, and descriptors whose
// extents are flat or sparse files. Sources of the format: VMware's "Virtual Disk Format 1.1", and
// QEMU's block/vmdk.c for what images in use do differently.
//
// It opens no file: the caller opens those that a descriptor names, and decides which may be. Snapshots,
// which need their parent, and the sparse formats of ESX are refused. It uses no second copy of a grain
// directory, and does not write.
//
// Invariant: images are untrusted. Whatever their bytes are, reading one ends, and takes memory in
// proportion to its files, up to fixed limits.
package vmdk

import (
	"errors"

	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
)

const sectorBytes = chunked.SectorBytes

// adviceConvert is what to do with an image that is not read.
const adviceConvert = `convert it with "qemu-img convert -O qcow2"`

// Beginnings of files.
const (
	magicSparse     = "KDMV"
	magicESX        = "COWD"
	magicDescriptor = "# Disk DescriptorFile"
)

var errESX = errors.New("it is a sparse image of ESX (COWD), which cannot be read: " + adviceConvert)

// IsImage reports whether a file that begins with some bytes is an image or a descriptor. It needs 21
// bytes of longer files.
func IsImage(beginning []byte) bool {
	for _, magic := range []string{magicSparse, magicESX, magicDescriptor} {
		if len(beginning) >= len(magic) && string(beginning[:len(magic)]) == magic {
			return true
		}
	}
	return false
}
