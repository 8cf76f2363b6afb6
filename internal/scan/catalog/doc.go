// Package catalog finds the packages of a file tree: it walks once, selects by path the files that
// describe packages, reads those, and returns every package once with all its locations.
//
// It does not match packages: it knows no advisory, no score and no database. It starts and changes
// nothing, and accepts any fs.FS: a directory, or a file system within an image.
//
// Invariant: each file costs bounded memory and time whatever its bytes are, and a file that cannot
// be read is counted and named, and never ends a walk.
package catalog
