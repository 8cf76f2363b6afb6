// Package stepcache keeps what scans of templates read and found in a directory of bounded size, for the next
// scan of a newer version.
//
// It does not know what its entries mean and when they are valid: internal/scan does. It is not a database: any
// entry may be gone.
//
// Invariant: Load returns only bytes that Save got for the same key, whatever is in the directory.
package stepcache
