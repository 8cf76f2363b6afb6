// Package backup handles the file that a store is backed up to: it is written whole or not at all, and it carries a
// checksum of itself.
//
// It does not know what the file holds, and restores nothing; package etcd does. The form is etcd's own: a database
// whose length is a multiple of 512, then the sha256 of it as 32 bytes. So etcd's tools read these files too.
//
// Invariant: a file that bears its final name was complete, checked and on disk before it got that name.
package backup
