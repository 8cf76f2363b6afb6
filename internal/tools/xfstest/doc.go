// Package xfstest runs tests of a package once more, with their temporary directories on a file
// system that can clone files: XFS, in an image file, mounted where no other process sees it.
//
// It is not for programs, and it does nothing on systems other than Linux.
//
// Invariant: however the tests end, no mount and no loop device remains.
package xfstest
