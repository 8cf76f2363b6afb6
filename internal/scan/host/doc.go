// Package host is the heart of the host scanner: it keeps the catalog of a machine's
// packages and what is wrong with them, in one pass over its files or as they come.
//
// It is not the service: it speaks no protocol, reads no configuration and starts no
// program. What changes on the machine it is told by internal/scan/watch.
//
// Invariant: what the catalog says of a file was read while the file was as it is noted
// there, and one transaction of the catalog holds all that follows from it; a process
// that is killed loses nothing but time.
package host
