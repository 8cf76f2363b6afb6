// Package disk opens the disk of a machine and finds the file systems on it, also in logical volumes of LVM
// and, with their keys, in parts encrypted with LUKS. The disk is stored in a raw file, a qcow2 image with its
// backing files, a VMDK image with its extents, a DMG image, an OVA appliance, or a template of a registry.
//
// It mounts nothing, starts nothing and changes nothing, takes no lock of a registry, and does not
// read the content of a file system: fs/ext4, fs/xfs, fs/btrfs, fs/apfs and fs/hfsplus do.
//
// Invariant: disks are untrusted. No file but the one that the user named, the files next to it that it
// names, and the layers of a template are ever opened, and every part of a disk is either returned
// as a volume or listed as skipped.
package disk

import "github.com/buildyard/buildyard/internal/scan/disk/chunked"

// ErrDamaged is in the chain of every error about contradictory bytes.
var ErrDamaged = chunked.ErrDamaged

func damaged(format string, args ...any) error { return chunked.Damaged(format, args...) }
