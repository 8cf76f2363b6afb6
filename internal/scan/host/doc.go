// Package host is the core of the host scanner: it maintains the inventory of a machine's packages
// and their findings, by full scans of the files or as files change.
//
// It is not the service: it speaks no protocol, reads no configuration and starts no program.
// internal/scan/watch notifies it of changes on the machine.
//
// Invariant: what the inventory records about a file was read while the file had the stamp recorded
// there, and one transaction of the inventory has all that follows from it; a killed process loses
// nothing but time.
package host
