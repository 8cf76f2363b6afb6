// Package unread keeps which files and directories the host scanner could not read, so that a report of a CI job can
// say that packages may be missing.
//
// It is not the list of warnings of a full scan, which names what could not be read in that scan.
//
// Invariant: an event is never lost. What is not named any more is still known by the number of the last such event.
package unread
