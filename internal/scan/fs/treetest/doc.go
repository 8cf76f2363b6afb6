// Package treetest creates directories with content that is difficult for file systems. It compares
// a file system with the list of what is in such a directory.
//
// It is not a file system and not part of a product: tests and test programs use it.
//
// Invariant: the same size produces the same tree, byte for byte.
package treetest
