// Package mirror collects advisories from their public sources into a directory, and opens it for a build of the
// vulnerability database.
//
// It reads no advisories further than to find that a file is whole and is a feed, and builds no database.
//
// Invariant: the manifest names only whole files, under names that contain their checksums, so a file never changes
// while it is named. A source that fails keeps its files.
package mirror
