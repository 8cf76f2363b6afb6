// Package treetest makes directories full of what file systems find hard, and compares a file
// system with the list of what is in such a directory.
//
// It is not a file system and no part of a product: tests and test programs use it.
//
// Invariant: the same size gives the same tree, byte for byte.
package treetest
