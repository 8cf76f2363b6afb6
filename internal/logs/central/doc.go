// Package central keeps the central logs of a cloud: rows of all its programs, in one
// directory a service and one file a machine and day, and the event log.
//
// It is not what sends rows (package logs) and knows no HTTP. Rows are not synced: a
// killed process loses none of them, a machine without power may.
//
// Invariant: one process writes a directory, so every reader learns of a new row from
// memory; and whatever callers send, the bytes, files, services and streams have bounds.
package central
