// Command images reads the same trees from disk images of every format that the scanner supports.
// It compares them with the original trees and with the results of other programs.
//
//	SHARED=../shared go run ./test/images [-only REGEXP] [-json FILE] [-keep]
//
// The subjects are disks: file systems of ext2 to ext4, XFS, Btrfs and HFS+ of up to 10,000 entries, bare and on a
// partition, and the disks with APFS of the shared data, with their lists of files. Some are read as a raw
// file, as qcow2 of each kind, as a chain of images, as a template that was pushed to a registry as
// three layers, as VMDK of each kind, as OVA, and as DMG with each kind of chunks. For each format
// qemu-img, 7-Zip or dmg2img must read the same bytes; debugfs, xfs_db and fsapfsinfo must list the same
// files, and 7-Zip read the same files of HFS+. The kernel writes the files on XFS and Btrfs, that of a guest those on
// HFS+, and LVM needs loop devices, for which the program runs as root.
// One tree is reported alike from a directory and from disks of each form, among them a logical volume and an encrypted
// disk, from container images that umoci and skopeo write, and from the bill of materials of the directory.
//
// Invariant: a test whose program or disk of the shared data is missing counts as failed.
package main
