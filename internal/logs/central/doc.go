// Package central stores the central logs of a cloud: rows of all its programs, with one directory
// per service and one file per machine and day, and the event log.
//
// It does not send rows (package logs does) and knows no HTTP. Rows are not synced: a killed
// process loses none of them, a power loss may.
//
// Invariant: only one process writes a directory, so every reader learns of a new row from memory;
// and whatever callers send, the bytes, files, services and streams are bounded.
package central
