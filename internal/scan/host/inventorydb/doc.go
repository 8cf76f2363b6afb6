// Package inventorydb is the inventory of a host scanner on disk: which files were read, the
// packages in them with number and date, and the findings of each package.
//
// It neither searches nor matches packages, and starts no program: internal/scan/host
// passes the results to it. It is not the vulnerability database, which is immutable.
//
// Invariant: every change is one transaction, and a process killed at any moment leaves only whole
// ones. Numbers are never reused. A package exists exactly as long as a file has it.
package inventorydb
