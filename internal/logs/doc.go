// Package logs sends the log of a process to the central logs of its cloud.
//
// It is not a logger and does not store rows (package central does): it is a writer below a logger,
// which writes one line per call.
//
// Invariant: logging never waits and never fails because of it. The queue of unsent lines is
// bounded; beyond the limit the oldest lines are dropped and counted, and a row reports how many.
package logs
