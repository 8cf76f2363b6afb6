// Command images reads the same trees from disk images of every format that the scanner supports.
// It compares them with the original trees and with the results of other programs.
//
//	SHARED=../shared go run ./test/images [-only REGEXP] [-json FILE] [-keep]
//
// The subjects are disks: an ext4 file system of 10,000 entries, bare and on a partition, and the
// disks with APFS of the shared data, with their lists of files. Each is read as a raw file, as
// qcow2 of each kind, as a chain of images, and as a template that was pushed to a registry as
// three layers. For each format qemu-img must read the same bytes; debugfs and fsapfsinfo must list
// the same files.
//
// Invariant: a test whose program or disk of the shared data is missing counts as failed.
package main
