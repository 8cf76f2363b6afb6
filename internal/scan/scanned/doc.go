// Package scanned keeps the packages that scans found in versions of templates, in a directory of bounded size: a newer
// vulnerability database is compared with them without another scan.
//
// It does not match and reports nothing: internal/cli/imagescan does. It is not a database: any entry may be gone.
//
// Invariant: Load returns only what Save got for the same content of the same template.
package scanned
