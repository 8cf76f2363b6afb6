// Package xfstest runs tests of a package once more, with their temporary directories on a file system that can clone
// files: XFS, in a file, mounted where no other process sees it.
//
// It is not for programs, and it does nothing on other systems than Linux.
//
// Invariant: whatever ends the tests, no mount and no loop device stays.
package xfstest
