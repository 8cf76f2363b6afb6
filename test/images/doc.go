// Command images reads the same trees from disk images of every form that the scanner
// knows, and compares them with what was put in and with what other programs see.
//
//	SHARED=../shared go run ./test/images [-only REGEXP] [-json FILE] [-keep]
//
// The subjects are disks: an ext4 file system of 10,000 entries, bare and on a partition,
// and the disks with APFS of the shared data, with their lists of files. Each is read as a raw
// file, as qcow2 of each kind, as a chain of images, and as a template that was pushed to a
// registry as three layers. For each form qemu-img must see the same bytes; debugfs and
// fsapfsinfo must list the same files.
//
// Invariant: what cannot be tried - a program or a disk of the shared data that is not
// there - counts as failed.
package main
