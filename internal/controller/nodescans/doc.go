// Package nodescans stores the last results of the host scanner on each node: their summary is a
// record, and all of them are a file on the file server of the registry.
//
// It does not scan, and it does not read the file.
//
// Invariant: a record names a complete file, since a new file never replaces the one that the record
// names.
package nodescans
