// Package hfsplustest writes HFS+ and HFSX volumes for tests: empty ones that a kernel fills, since Debian 12 has no
// package with mkfs.hfsplus, and features that no system here writes, such as compressed files, linked directories, a
// journal and a wrapper of HFS. It was written from the format and shares no code with the reader that it tests.
//
// It is for tests only. Names that differ in case beyond ASCII are not in the order of other systems.
//
// Invariant: the same description always produces the same bytes, and its maps of free space are right.
package hfsplustest
