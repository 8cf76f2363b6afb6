// Package inventorydb is the catalog of a host scanner on disk: which files were looked into,
// the packages in them with number and date, and what is known to be wrong with each.
//
// It does not look for packages and judges none, and starts nothing: internal/scan/host
// tells it what was found. It is not the vulnerability database, which never changes.
//
// Invariant: every change is one transaction, and no moment at which a process is killed
// leaves more or less than whole ones. Numbers are never given twice. A package is there
// as long as a file has it, no longer.
package inventorydb
