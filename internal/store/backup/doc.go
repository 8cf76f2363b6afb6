// Package backup handles the backup file of a store: it is written completely or not at all, and it
// has a checksum of itself.
//
// It excludes the content of the file and the restore, which are package etcd's. The form is etcd's
// own: a database whose length is a multiple of 512, then its SHA-256 as 32 bytes. So etcd's tools
// read these files too.
//
// Invariant: a file with its final name was complete, checked and on disk before it got that name.
package backup
