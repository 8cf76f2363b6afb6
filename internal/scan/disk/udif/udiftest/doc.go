// Package udiftest writes Apple disk images (DMG) for tests, with every kind of chunks, in the way of hdiutil.
//
// It is not for products: it compresses slowly, bzip2 and xz with the programs of these names.
//
// Invariant: the sums in an image are correct, so that other programs verify what they read.
package udiftest
