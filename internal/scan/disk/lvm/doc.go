// Package lvm reads the logical volumes of LVM2: the labels and metadata of physical volumes, and the bytes of linear
// and striped logical volumes. Sources of the format: lib/format_text/layout.h, lib/label/label.h and
// lib/format_text/import_vsn1.c of LVM2, and the manual page lvmsystemid(7) and lvm.conf(5) for its text.
//
// It activates nothing, writes nothing and looks for no devices: the caller passes the physical volumes. Thin, cached,
// mirrored, RAID and snapshot volumes, and volumes with a missing physical volume, are named and not read. Of the
// metadata only the current version is read, no archive of an earlier one.
//
// Invariant: physical volumes are untrusted. Whatever their bytes are, reading them ends within fixed limits of
// memory, and no logical volume has bytes outside of the extents of its physical volumes, or of another volume.
package lvm

import "github.com/buildyard/buildyard/internal/scan/disk/chunked"

func damaged(format string, args ...any) error { return chunked.Damaged(format, args...) }
