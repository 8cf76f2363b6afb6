// Package catalog finds the packages of a tree of files: it walks once, asks by path
// which files tell of packages, reads those, and gives every package once with all its
// locations.
//
// It is not what judges them: it knows no advisory, no score and no database. It starts
// and changes nothing, and takes any fs.FS: a directory, or a file system within an image.
//
// Invariant: what one file holds costs bounded memory and time whatever its bytes say,
// and a file that cannot be read is counted and named, never the end of a walk.
package catalog
